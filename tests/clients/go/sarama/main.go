// sarama as a program, see tests/clients/programs.py: produce SERVERS TOPIC sends each line of stdin,
// consume SERVERS TOPIC COUNT [GROUP] prints that many records; each record is a line "offset value".
// attempts SERVERS tries credentials, see attempt.go.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"

	"github.com/IBM/sarama"
)

func main() {
	servers := strings.Split(os.Args[2], ",")
	config := sarama.NewConfig()
	if version := os.Getenv("SARAMA_VERSION"); version != "" {
		parsed, err := sarama.ParseKafkaVersion(version)
		if err != nil {
			log.Fatal(err)
		}
		config.Version = parsed
	}
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	switch os.Args[1] {
	case "attempts":
		attempts(servers, config)
	case "produce":
		produce(servers, os.Args[3], config)
	case "consume":
		topic := os.Args[3]
		count, _ := strconv.Atoi(os.Args[4])
		if len(os.Args) > 5 {
			consumeGroup(servers, topic, count, os.Args[5], config)
		} else {
			consume(servers, topic, count, config)
		}
	}
}

func produce(servers []string, topic string, config *sarama.Config) {
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Retry.Max = 600 // of 100 ms each; the default of 3 is shorter than an election takes
	config.Producer.Return.Successes = true
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewAsyncProducer(servers, config)
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan bool)
	go func() {
		for message := range producer.Successes() {
			value, _ := message.Value.Encode()
			fmt.Println(message.Offset, string(value))
		}
		done <- true
	}()
	go func() {
		for problem := range producer.Errors() {
			log.Fatal(problem)
		}
	}()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		producer.Input() <- &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(lines.Text())}
	}
	producer.AsyncClose()
	<-done
}

func consume(servers []string, topic string, count int, config *sarama.Config) {
	consumer, err := sarama.NewConsumer(servers, config)
	if err != nil {
		log.Fatal(err)
	}
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		log.Fatal(err)
	}
	for ; count > 0; count-- {
		message := <-partition.Messages()
		fmt.Println(message.Offset, string(message.Value))
	}
	partition.Close()
	consumer.Close()
}

type reader struct {
	left int
	next int64 // what is read again, as its offset was not committed, does not count
	stop context.CancelFunc
}

func (*reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		fmt.Println(message.Offset, string(message.Value))
		session.MarkMessage(message, "")
		if message.Offset >= r.next {
			r.next = message.Offset + 1
			r.left--
		}
		if r.left == 0 {
			r.stop()
		}
	}
	return nil
}

func consumeGroup(servers []string, topic string, count int, name string, config *sarama.Config) {
	group, err := sarama.NewConsumerGroup(servers, name, config)
	if err != nil {
		log.Fatal(err)
	}
	context, stop := context.WithCancel(context.Background())
	reader := &reader{count, 0, stop}
	for context.Err() == nil {
		if err := group.Consume(context, []string{topic}, reader); err != nil {
			log.Println(err)
		}
	}
	if err := group.Close(); err != nil {
		log.Fatal(err)
	}
}
