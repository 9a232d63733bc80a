// Package examples holds a client of Tidegauge's control interface in one file: copy it beside your tests.
package examples

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// JSON is an object of the interface.
type JSON = map[string]any

// Refused is the server's error: its HTTP status, its name, its sentence, and what is true instead.
type Refused struct {
	Status  int
	Name    string
	Message string
	Actual  any
}

func (r *Refused) Error() string { return fmt.Sprintf("%d %s: %s", r.Status, r.Name, r.Message) }

// Control is the control interface of one cluster.
type Control struct {
	URL, Token string
	client     http.Client
}

// NewControl reads TIDEGAUGE_CONTROL and TIDEGAUGE_CONTROL_TOKEN.
func NewControl() *Control {
	address := os.Getenv("TIDEGAUGE_CONTROL")
	if address == "" {
		address = "http://127.0.0.1:19079"
	}
	return &Control{
		URL:    strings.TrimRight(address, "/"),
		Token:  os.Getenv("TIDEGAUGE_CONTROL_TOKEN"),
		client: http.Client{Timeout: 10 * time.Minute},
	}
}

// Ask sends a request and returns the response's JSON; what is not as it should be is a *Refused.
func (c *Control) Ask(method, path string, body any) (JSON, error) {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequest(method, c.URL+path, content)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if c.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.Token)
	}
	response, err := c.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	found := JSON{}
	if err := json.NewDecoder(response.Body).Decode(&found); err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		problem, _ := found["error"].(JSON)
		return nil, &Refused{response.StatusCode, fmt.Sprint(problem["name"]), fmt.Sprint(problem["message"]), found["actual"]}
	}
	return found, nil
}

// Cluster returns whether the cluster is ready, its addresses and brokers.
func (c *Control) Cluster() (JSON, error) { return c.Ask("GET", "/v1/cluster", nil) }

// Partition returns leader, epoch, ISR and every replica.
func (c *Control) Partition(topic string, partition int) (JSON, error) {
	return c.Ask("GET", fmt.Sprintf("/v1/topics/%s/%d", url.PathEscape(topic), partition), nil)
}

// Broker kills, stops, pauses, resumes or starts "1", "leader-of:orders-0", "controller", ...
func (c *Control) Broker(target, verb string) (JSON, error) {
	return c.Ask("POST", "/v1/brokers/"+url.PathEscape(target)+"/"+verb, nil)
}

// Wait waits for one of isr, leader, high_watermark, in_sync, group, ready.
func (c *Control) Wait(condition JSON) (JSON, error) { return c.Ask("POST", "/v1/wait", condition) }

// Fault puts rules for requests in force and returns the fault's id.
func (c *Control) Fault(rules ...JSON) (int, error) {
	found, err := c.Ask("POST", "/v1/faults", JSON{"rules": rules})
	if err != nil {
		return 0, err
	}
	return int(found["id"].(float64)), nil
}

// WaitFault waits until a fault has so many hits.
func (c *Control) WaitFault(id, hits int) (JSON, error) {
	return c.Ask("POST", fmt.Sprintf("/v1/faults/%d/wait", id), JSON{"hits": hits})
}

// Reset brings all brokers up, ends what is in force and deletes the topics and groups of the test.
func (c *Control) Reset() (JSON, error) { return c.Ask("POST", "/v1/reset", nil) }
