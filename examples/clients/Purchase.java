import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.UUID;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Buys one unit and waits for its order: SLUICE_URL, ACTIVITY, REQUEST_ID and, needed, TOKEN. */
public class Purchase {
    private static final int TRIES = 6;
    private static final HttpClient CLIENT =
            HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(5)).build();

    public static void main(String[] args) throws Exception {
        // One id for each click, made before the first try: every repeat is the same purchase.
        String id = env("REQUEST_ID", UUID.randomUUID().toString());
        String body = "{\"client_request_id\":\"" + id + "\"}";
        String path = "/api/flashsales/" + env("ACTIVITY", "30001") + "/purchase";
        String told = call(to(path).POST(BodyPublishers.ofString(body)).build());
        while (field(told, "status").equals("pending_order")) {
            String purchase = field(told, "pre_deduction_id");
            told = call(to("/api/flashsales/purchases/" + purchase + "?wait=5s").build());
        }
        System.out.println(field(told, "order_no") + " " + field(told, "status"));
    }

    /** The answer, after as many tries as it takes: 429 and 503 say when to come back. */
    private static String call(HttpRequest request) throws InterruptedException {
        for (int left = TRIES - 1; ; left--) {
            long seconds = 1;
            try {
                HttpResponse<String> answer = CLIENT.send(request, BodyHandlers.ofString());
                int status = answer.statusCode();
                if (status < 300) {
                    return answer.body();
                }
                if (left == 0 || status != 429 && status != 503) {
                    throw new IllegalStateException(status + ": " + field(answer.body(), "code"));
                }
                seconds = answer.headers().firstValueAsLong("Retry-After").orElse(1);
            } catch (IOException e) {
                // Refused, broken off, timed out: whatever became of it, the repeat will tell.
                if (left == 0) {
                    throw new IllegalStateException("no answer: " + e.getMessage());
                }
            }
            Thread.sleep(seconds * 1000);
        }
    }

    private static HttpRequest.Builder to(String path) {
        return HttpRequest.newBuilder(URI.create(env("SLUICE_URL", "http://127.0.0.1:8080") + path))
                .timeout(Duration.ofSeconds(40))
                .header("Authorization", "Bearer " + System.getenv("TOKEN"))
                .header("Content-Type", "application/json");
    }

    /** A flat field. The JDK reads no JSON; a program of yours will have a library that does. */
    private static String field(String json, String name) {
        Matcher found = Pattern.compile("\"" + name + "\":\"?([^\",}]*)").matcher(json);
        return found.find() ? found.group(1) : "";
    }

    private static String env(String name, String otherwise) {
        String value = System.getenv(name);
        return value == null || value.isEmpty() ? otherwise : value;
    }
}
