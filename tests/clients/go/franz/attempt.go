package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// attempts reads lines "mechanism user password topic" and prints for each what came of writing a record and reading it:
// "done", or the error.
func attempts(servers kgo.Opt) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if err := attempt(servers, mechanism(words[0], words[1], words[2]), words[3]); err != nil {
			fmt.Println(strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println("done")
		}
	}
}

func mechanism(name, user, password string) sasl.Mechanism {
	switch name {
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
	}
	return plain.Auth{User: user, Pass: password}.AsMechanism()
}

func attempt(servers kgo.Opt, mechanism sasl.Mechanism, topic string) error {
	start := map[int32]kgo.Offset{0: kgo.NewOffset().AtStart()}
	client, err := kgo.NewClient(servers, kgo.SASL(mechanism), kgo.DefaultProduceTopic(topic),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: start}))
	if err != nil {
		return err
	}
	defer client.Close()
	limit, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	if err := client.Ping(limit); err != nil {
		return err
	}
	if err := client.ProduceSync(limit, kgo.StringRecord("franz-go")).FirstErr(); err != nil {
		return err
	}
	fetches := client.PollFetches(limit)
	return fetches.Err()
}
