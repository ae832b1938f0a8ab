// Buys one unit and waits for its order: SLUICE_URL, ACTIVITY, REQUEST_ID and, needed, TOKEN.
package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"
)

const tries = 6

var client = &http.Client{Timeout: 40 * time.Second}

type purchase struct {
	PreDeductionID int64  `json:"pre_deduction_id"`
	OrderNo        string `json:"order_no"`
	Status         string `json:"status"`
}

func env(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// call returns the answer after as many tries as it takes: 429 and 503 say when to come back.
func call(method, path string, body []byte) (purchase, error) {
	var told purchase
	var last error
	for try := 0; try < tries; try++ {
		request, err := http.NewRequest(method, env("SLUICE_URL", "http://127.0.0.1:8080")+path, bytes.NewReader(body))
		if err != nil {
			return told, err
		}
		request.Header.Set("Authorization", "Bearer "+os.Getenv("TOKEN"))
		request.Header.Set("Content-Type", "application/json")
		wait := time.Second
		answer, err := client.Do(request)
		if err != nil {
			// Refused, broken off, timed out: whatever became of it, the repeat will tell.
			last = err
		} else {
			var problem struct{ Code string }
			switch {
			case answer.StatusCode < 300:
				err = json.NewDecoder(answer.Body).Decode(&told)
				answer.Body.Close()
				return told, err
			case answer.StatusCode == 429 || answer.StatusCode == 503:
				seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
				if err == nil {
					wait = time.Duration(seconds) * time.Second
				}
				last = fmt.Errorf("%s", answer.Status)
			default:
				_ = json.NewDecoder(answer.Body).Decode(&problem)
				answer.Body.Close()
				return told, fmt.Errorf("%d: %s", answer.StatusCode, problem.Code)
			}
			answer.Body.Close()
		}
		time.Sleep(wait)
	}
	return told, last
}

func main() {
	// One id for each click, made before the first try: every repeat is the same purchase.
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		fail(err)
	}
	id := env("REQUEST_ID", fmt.Sprintf("%x", random))
	body, err := json.Marshal(map[string]string{"client_request_id": id})
	if err != nil {
		fail(err)
	}
	told, err := call("POST", "/api/flashsales/"+env("ACTIVITY", "30001")+"/purchase", body)
	for err == nil && told.Status == "pending_order" {
		told, err = call("GET", fmt.Sprintf("/api/flashsales/purchases/%d?wait=5s", told.PreDeductionID), nil)
	}
	if err != nil {
		fail(err)
	}
	fmt.Println(told.OrderNo, told.Status)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
