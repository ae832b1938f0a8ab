/* hiredis, which other clients are built on, against the Redis port. */

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static redisContext *context;

static void expect(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "not so: %s (%s)\n", what, context ? context->errstr : "");
        exit(1);
    }
}

int main(int argc, char **argv) {
    expect(argc == 2, "a port is given");
    context = redisConnect("127.0.0.1", atoi(argv[1]));
    expect(context && !context->err, "it connects");
    redisReply *reply = redisCommand(context,
        "FCALL sluice_warm 1 %s 20001 9900 1000 1 0 253402300799999", "7");
    expect(reply && reply->type == REDIS_REPLY_INTEGER && reply->integer == 1, "warm answers 1");
    freeReplyObject(reply);
    reply = redisCommand(context, "FCALL sluice_publish 1 7");
    expect(reply && reply->integer == 1, "publish answers 1");
    freeReplyObject(reply);

    for (int user = 1; user <= 500; user++)
        redisAppendCommand(context, "FCALL sluice_reserve 1 7 %d %b 1", user, "a b", (size_t)3);
    for (int user = 1; user <= 500; user++) {
        expect(redisGetReply(context, (void **)&reply) == REDIS_OK, "each call is answered");
        expect(reply->type == REDIS_REPLY_ARRAY && reply->elements == 4, "with four fields");
        expect(reply->element[0]->integer == 1, "as reserved");
        expect(reply->element[3]->integer == 1000 - user, "in order");
        freeReplyObject(reply);
    }
    reply = redisCommand(context, "GET flashsale:stock:7");
    expect(reply->type == REDIS_REPLY_STRING && !strcmp(reply->str, "500"), "half is left");
    freeReplyObject(reply);
    reply = redisCommand(context, "NOTHING");
    expect(reply->type == REDIS_REPLY_ERROR && !strncmp(reply->str, "ERR unknown command", 19),
        "an unknown command is an error");
    freeReplyObject(reply);
    redisFree(context);
    puts("hiredis is content");
    return 0;
}
