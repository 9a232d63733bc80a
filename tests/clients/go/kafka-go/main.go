// segmentio/kafka-go as a program, see tests/clients/programs.py: produce SERVERS TOPIC sends each line of stdin,
// consume SERVERS TOPIC COUNT [GROUP] prints that many records; each record that is read is a line "offset value".
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

func main() {
	servers := strings.Split(os.Args[2], ",")
	switch os.Args[1] {
	case "produce":
		produce(servers, os.Args[3])
	case "consume":
		count, _ := strconv.Atoi(os.Args[4])
		consume(servers, os.Args[3], count, os.Args[5:])
	}
}

// produce waits for each record: the writer's own time to fill a batch is a second.
func produce(servers []string, topic string) {
	writer := &kafka.Writer{
		Addr: kafka.TCP(servers...), Topic: topic, RequiredAcks: kafka.RequireAll, BatchSize: 1, MaxAttempts: 100,
		Completion: func(written []kafka.Message, err error) {
			for _, record := range written {
				if err == nil {
					fmt.Println(record.Offset, string(record.Value))
				}
			}
		},
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		// It gives up at once when it can't have the metadata, or the topic has no leader at the moment.
		for {
			err := writer.WriteMessages(context.Background(), kafka.Message{Value: lines.Bytes()})
			if err == nil {
				break
			}
			log.Print(err)
			time.Sleep(100 * time.Millisecond)
		}
	}
	if err := writer.Close(); err != nil {
		log.Fatal(err)
	}
}

func consume(servers []string, topic string, count int, group []string) {
	settings := kafka.ReaderConfig{Brokers: servers, Topic: topic, StartOffset: kafka.FirstOffset}
	if len(group) > 0 {
		settings.GroupID = group[0]
	}
	reader := kafka.NewReader(settings)
	seen := map[string]bool{} // a record may be there twice, or be read twice: the writer is not idempotent
	for len(seen) < count {
		record, err := reader.ReadMessage(context.Background())
		if err != nil { // it reports what it can't reach, and goes on
			log.Print(err)
			continue
		}
		fmt.Println(record.Offset, string(record.Value))
		seen[string(record.Value)] = true
	}
	if err := reader.Close(); err != nil {
		log.Fatal(err)
	}
}
