package main

import (
	"bufio"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"os"
	"strings"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// attempts reads lines "mechanism user password topic" and prints for each what came of writing a record and reading it:
// "done", or the error.
func attempts(servers []string, config *sarama.Config) {
	config.Net.SASL.Enable = true
	config.Producer.Return.Successes = true
	config.Consumer.Return.Errors = true
	config.Metadata.Retry.Max = 1
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		config.Net.SASL.Mechanism = sarama.SASLMechanism(words[0])
		config.Net.SASL.User, config.Net.SASL.Password = words[1], words[2]
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{mechanism: words[0]} }
		if err := attempt(servers, words[3], config); err != nil {
			fmt.Println(strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println("done")
		}
	}
}

func attempt(servers []string, topic string, config *sarama.Config) error {
	producer, err := sarama.NewSyncProducer(servers, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	message := &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("sarama")}
	if _, _, err := producer.SendMessage(message); err != nil {
		return err
	}
	consumer, err := sarama.NewConsumer(servers, config)
	if err != nil {
		return err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	defer partition.Close()
	select {
	case <-partition.Messages():
		return nil
	case err := <-partition.Errors():
		return err
	}
}

// conversation is what sarama leaves to its user: a client's side of SCRAM.
type conversation struct {
	mechanism string
	*scram.ClientConversation
}

func (c *conversation) Begin(user, password, authorization string) error {
	hash := scram.HashGeneratorFcn(sha256.New)
	if c.mechanism == sarama.SASLTypeSCRAMSHA512 {
		hash = sha512.New
	}
	client, err := hash.NewClient(user, password, authorization)
	if err == nil {
		c.ClientConversation = client.NewConversation()
	}
	return err
}
