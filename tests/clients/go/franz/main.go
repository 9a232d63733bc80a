// franz-go as a program, see tests/clients/programs.py: produce SERVERS TOPIC sends each line of stdin,
// consume SERVERS TOPIC COUNT [GROUP] prints that many records; each record is a line "offset value".
// attempts SERVERS tries credentials, see attempt.go; member SERVERS GROUP TOPIC is a member of a group, see member.go.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	servers := kgo.SeedBrokers(strings.Split(os.Args[2], ",")...)
	switch os.Args[1] {
	case "attempts":
		attempts(servers)
	case "member":
		member(servers, os.Args[3], os.Args[4])
	case "produce":
		produce(servers, os.Args[3])
	case "consume":
		count, _ := strconv.Atoi(os.Args[4])
		consume(count, os.Args[3], servers, os.Args[5:])
	}
}

// produce is idempotent with acks=all, which are kgo's defaults.
func produce(servers kgo.Opt, topic string) {
	client, err := kgo.NewClient(servers, kgo.DefaultProduceTopic(topic))
	if err != nil {
		log.Fatal(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		client.Produce(context.Background(), kgo.StringRecord(lines.Text()), func(record *kgo.Record, err error) {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println(record.Offset, string(record.Value))
		})
	}
	if err := client.Flush(context.Background()); err != nil {
		log.Fatal(err)
	}
	client.Close()
}

func consume(count int, topic string, servers kgo.Opt, group []string) {
	options := []kgo.Opt{servers, kgo.ConsumeTopics(topic)}
	if len(group) > 0 {
		options = append(options, kgo.ConsumerGroup(group[0]), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	} else {
		start := map[int32]kgo.Offset{0: kgo.NewOffset().AtStart()}
		options = []kgo.Opt{servers, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: start})}
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		log.Fatal(err)
	}
	next := int64(0) // what is read again, as its offset was not committed, does not count
	for count > 0 {
		fetches := client.PollFetches(context.Background())
		for _, problem := range fetches.Errors() {
			log.Println(problem.Err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Println(record.Offset, string(record.Value))
			if record.Offset >= next {
				next = record.Offset + 1
				count--
			}
		})
	}
	if len(group) > 0 {
		if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
			log.Fatal(err)
		}
	}
	client.Close()
}
