// Copies a topic in transactions with franz-go: the Go side of tests/clients/transactional_copier.py, with the same
// argument, a JSON object. Its partitions are those that the group assigns (GroupTransactSession, KIP-447).
//
// After an error of a transaction's end the session would read on from the positions that it believes to be committed, and
// the commit may have taken effect; so the program then begins again as a new process, which asks the coordinators.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	abortEvery  = 3
	endTimeout  = 90 * time.Second
	pollTimeout = 50 * time.Millisecond
)

type settings struct {
	Servers         string
	TransactionalID string `json:"transactional_id"`
	Group           string
	Source          string
	Target          string
	Partitions      int32
	Size            int
	History         *string
}

type fields map[string]any

// history appends the operations of this process to a file, each in a line before it begins and one after it.
type history struct {
	process string
	file    *os.File // nil: nothing is written
	mutex   sync.Mutex
	next    int
}

func newHistory(path *string, name string) *history {
	made := &history{process: fmt.Sprintf("%s-%d-%d", name, os.Getpid(), time.Now().UnixNano())}
	if path != nil {
		file, err := os.OpenFile(*path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			log.Fatal(err)
		}
		made.file = file
	}
	return made
}

func (h *history) invoke(op string, more fields) int {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	number := h.next
	h.next++
	h.write("invoke", number, fields{"op": op}, more)
	return number
}

func (h *history) end(number int, outcome string, more fields) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.write(outcome, number, more)
}

func (h *history) write(kind string, number int, parts ...fields) {
	if h.file == nil {
		return
	}
	line := fields{"type": kind, "process": h.process, "number": number, "time_us": time.Now().UnixMicro()}
	for _, part := range parts {
		for name, value := range part {
			line[name] = value
		}
	}
	text, err := json.Marshal(line)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := h.file.Write(append(text, '\n')); err != nil {
		log.Fatal(err)
	}
}

type copier struct {
	settings
	history      *history
	session      *kgo.GroupTransactSession
	moved        atomic.Bool // positions may be anywhere since the last poll
	transactions int
	copied       int
}

func newCopier(given settings) *copier {
	made := &copier{settings: given, history: newHistory(given.History, given.TransactionalID)}
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(given.Servers, ",")...),
		kgo.TransactionalID(given.TransactionalID),
		kgo.TransactionTimeout(30*time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumerGroup(given.Group),
		kgo.ConsumeTopics(given.Source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(time.Second),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { made.moved.Store(true) }),
	)
	if err != nil {
		log.Fatal(err)
	}
	made.session = session
	return made
}

func (c *copier) run(ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			c.session.Close()
			return
		default:
		}
		if records := c.poll(); len(records) > 0 {
			c.transact(records)
		}
	}
}

func (c *copier) name() string {
	return fmt.Sprintf("%s-%d", c.history.process, c.transactions+1)
}

// poll returns records, with their lines. Where partitions were assigned meanwhile it is not known whether the records
// were read before or after that, so a line of an assignment and the poll's line stand behind both.
func (c *copier) poll() []*kgo.Record {
	limited, cancel := context.WithTimeout(context.Background(), pollTimeout)
	defer cancel()
	number := c.history.invoke("poll", fields{"transaction": c.name()})
	fetches := c.session.PollRecords(limited, c.Size)
	if c.moved.Swap(false) {
		c.history.end(c.history.invoke("assign", nil), "ok", nil)
		number = c.history.invoke("poll", fields{"transaction": c.name()})
	}
	fetches.EachError(func(topic string, partition int32, problem error) {
		if limited.Err() == nil {
			log.Printf("%s-%d: %s", topic, partition, problem)
		}
	})
	records := fetches.Records()
	seen := [][]any{}
	for _, record := range records {
		seen = append(seen, []any{record.Topic, record.Partition, record.Offset, string(record.Value)})
	}
	if len(seen) > 0 {
		c.history.end(number, "ok", fields{"records": seen})
	}
	return records
}

func (c *copier) transact(records []*kgo.Record) {
	name := c.name()
	c.transactions++
	limited, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if err := c.session.Begin(); err != nil {
		beginAsANewProcess(err)
	}
	offsets := map[string]int64{}
	for _, record := range records {
		c.send(record, name)
		offsets[fmt.Sprintf("%s-%d", record.Topic, record.Partition)] = record.Offset + 1
	}
	of := fields{"transaction": name}
	if c.transactions%abortEvery == 0 {
		if err := c.session.Client().Flush(limited); err != nil {
			beginAsANewProcess(err)
		}
		number := c.history.invoke("abort", of)
		if _, err := c.session.End(limited, kgo.TryAbort); err != nil {
			beginAsANewProcess(err)
		}
		c.history.end(number, "ok", nil)
		c.moved.Store(true)
	} else {
		c.commit(limited, of, offsets, len(records))
	}
	fmt.Printf("{\"transactions\": %d, \"copied\": %d}\n", c.transactions, c.copied)
}

// commit sends the group's positions and commits; the session aborts instead if another member has got the partitions.
func (c *copier) commit(limited context.Context, of fields, offsets map[string]int64, count int) {
	sent := c.history.invoke("send-offsets", fields{"transaction": of["transaction"], "group": c.Group, "offsets": offsets})
	number := c.history.invoke("commit", of)
	committed, err := c.session.End(limited, kgo.TryCommit)
	switch {
	case err != nil:
		beginAsANewProcess(err)
	case committed:
		c.history.end(sent, "ok", nil)
		c.history.end(number, "ok", nil)
		c.copied += count
	default:
		c.history.end(number, "fail", nil)
		c.moved.Store(true)
	}
}

func (c *copier) send(read *kgo.Record, name string) {
	value := string(read.Value)
	if c.history.file != nil {
		value += "#" + name
	}
	partition := read.Partition % c.Partitions
	where := fields{"transaction": name, "topic": c.Target, "partition": partition, "value": value}
	number := c.history.invoke("send", where)
	record := &kgo.Record{Topic: c.Target, Partition: partition, Value: []byte(value)}
	c.session.Produce(context.Background(), record, func(written *kgo.Record, err error) {
		if err != nil {
			c.history.end(number, "info", fields{"error": err.Error()}) // it may have been tried more than once
			return
		}
		c.history.end(number, "ok", fields{"offset": written.Offset})
	})
}

// beginAsANewProcess runs the program again in this process; connections and files are closed by it.
func beginAsANewProcess(problem error) {
	log.Println("a new process:", problem)
	log.Fatal(syscall.Exec(os.Args[0], os.Args, os.Environ()))
}

func main() {
	var given settings
	if err := json.Unmarshal([]byte(os.Args[1]), &given); err != nil {
		log.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	newCopier(given).run(ended)
}
