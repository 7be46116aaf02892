// Package check holds what the Go clients share: options, sample messages and the report.
package check

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options is the command line: ACTION N --name value ...
type Options struct {
	Action, Endpoint, Topic, Group, Kind, Mode, Run, Tags string
	Count, Size, Delay, Timeout, Concurrency, Refuse      int
	TLS, AllowDuplicates                                  bool
	AccessKey, SecretKey                                  string
}

// Parse reads the command line.
func Parse() *Options {
	o := &Options{AccessKey: os.Getenv("PEERS_ACCESS_KEY"), SecretKey: os.Getenv("PEERS_SECRET_KEY")}
	flag.StringVar(&o.Endpoint, "endpoint", "127.0.0.1:8080", "address to connect to")
	flag.StringVar(&o.Topic, "topic", "peers-normal", "topic")
	flag.StringVar(&o.Group, "group", "peers-group", "consumer group")
	flag.StringVar(&o.Kind, "kind", "normal", "what is sent, and how")
	flag.StringVar(&o.Mode, "mode", "push", "push, pull, broadcast or simple")
	flag.StringVar(&o.Run, "run", "run", "name that tells this run's messages from others")
	flag.StringVar(&o.Tags, "tags", "", "tag expression")
	flag.IntVar(&o.Size, "size", 0, "filler bytes in a body")
	flag.IntVar(&o.Delay, "delay", 0, "milliseconds of delay")
	flag.IntVar(&o.Timeout, "timeout", 60, "seconds to wait for the messages")
	flag.IntVar(&o.Concurrency, "concurrency", 64, "unanswered sends in a bench")
	flag.IntVar(&o.Refuse, "refuse", 0, "deliveries to refuse first")
	flag.BoolVar(&o.TLS, "tls", false, "connect with TLS")
	flag.BoolVar(&o.AllowDuplicates, "allow-duplicates", false, "accept messages twice")
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: ACTION N --endpoint HOST:PORT --topic T [--option value]")
		os.Exit(2)
	}
	o.Action = os.Args[1]
	o.Count, _ = strconv.Atoi(os.Args[2])
	_ = flag.CommandLine.Parse(os.Args[3:])
	if o.Kind == "sync" {
		o.Kind = "normal"
	}
	if o.Tags == "" {
		o.Tags = map[bool]string{true: "tag0 || tag2", false: "*"}[o.Kind == "tags"]
	}
	if o.Delay == 0 {
		o.Delay = map[bool]int{true: 8000, false: 3000}[o.Kind == "recall"]
	}
	if o.Size == 0 {
		o.Size = map[bool]int{true: 20 << 10, false: 256}[o.Kind == "compressed"]
	}
	return o
}

// Copies is how many times each message must arrive: once per receiver.
func (o *Options) Copies() int {
	if o.Mode == "broadcast" {
		return 2
	}
	return 1
}

// Expects tells whether the message of this number must arrive, rather than must not.
func (o *Options) Expects(index int) bool {
	switch o.Kind {
	case "tags":
		return index%3 != 1
	case "sql":
		return 3 <= index && index <= 7
	case "dlq", "fifo-dlq":
		return index != 0
	case "recall":
		return index%2 == 0
	default:
		return true
	}
}

// RolledBack is the number of extra messages whose transaction is rolled back.
func (o *Options) RolledBack() int {
	if o.Kind == "transaction" || o.Kind == "transaction-recovery" {
		return 1 + o.Count/10
	}
	return 0
}

// Sample is the message that every client sends for a given run and index.
type Sample struct {
	Run         string
	Index, Size int
}

// Body is the run, the index and some filler of every byte value.
func (s Sample) Body() []byte {
	body := fmt.Appendf(nil, "%s/%d/", s.Run, s.Index)
	for i := range s.Size {
		body = append(body, byte(s.Index+i))
	}
	return body
}

// Tag is one of three.
func (s Sample) Tag() string { return fmt.Sprintf("tag%d", s.Index%3) }

// Keys are two: one of its own and one of the run.
func (s Sample) Keys() []string {
	return []string{fmt.Sprintf("%s-%d", s.Run, s.Index), "all-" + s.Run}
}

// Properties are what the receiver identifies the message by, and some non-ASCII text.
func (s Sample) Properties() map[string]string {
	return map[string]string{"run": s.Run, "index": strconv.Itoa(s.Index), "note": "snow \u2603 \u00e9"}
}

// Group is one of two FIFO groups, each of which must stay in order.
func (s Sample) Group() string { return fmt.Sprintf("%s-g%d", s.Run, s.Index%2) }

// copyOf is a message as one receiver gets it.
type copyOf struct{ receiver, index int }

// Report compares what arrives with what was sent.
type Report struct {
	client                     string
	options                    *Options
	mutex                      sync.Mutex
	begin, firstSend           time.Time
	missing                    map[copyOf]bool
	unseen, extraProperties    map[string]bool
	lastOfGroup                map[string]int
	wrong                      []string
	sent, received, duplicates int
	failure                    string
	extra                      map[string]any
	took                       time.Duration
}

// NewReport expects the messages that the options name.
func NewReport(client string, o *Options) *Report {
	r := &Report{client: client, options: o, begin: time.Now(),
		missing: map[copyOf]bool{}, unseen: map[string]bool{}, extraProperties: map[string]bool{}, lastOfGroup: map[string]int{}, extra: map[string]any{}}
	if slices.Contains([]string{"consume", "roundtrip", "recover"}, o.Action) {
		for i := range o.Count * o.Copies() {
			if o.Expects(i % o.Count) {
				r.missing[copyOf{i / o.Count, i % o.Count}] = true
			}
		}
	}
	return r
}

// Expect names something besides the messages that must be seen.
func (r *Report) Expect(fact string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.unseen[fact] = true
}

// Seen takes an expected fact as seen.
func (r *Report) Seen(fact string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.unseen, fact)
}

// Claim records as wrong what does not hold.
func (r *Report) Claim(what string, holds bool, got any) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if !holds {
		r.wrong = append(r.wrong, fmt.Sprintf("%s: %v", what, got))
	}
}

// Sent counts one accepted message.
func (r *Report) Sent() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.sent == 0 {
		r.firstSend = time.Now()
	}
	r.sent++
}

// Origin judges what a message of this run tells of its sender: its group and when it was born.
func (r *Report) Origin(properties map[string]string, group string, born time.Time) {
	if properties["run"] != r.options.Run {
		return
	}
	index, _ := strconv.Atoi(properties["index"])
	age := time.Since(born)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.compare(index, "age", -time.Second < age && age < 10*time.Minute, age)
	if r.options.Kind == "delay" {
		// The broker's timer works in whole seconds.
		r.compare(index, "delay", age.Milliseconds() >= int64(r.options.Delay)-1000, age)
	}
	if strings.HasPrefix(r.options.Kind, "fifo") {
		expected := Sample{Run: r.options.Run, Index: index}.Group()
		r.compare(index, "message group", group == expected, group)
	}
}

// Extra is the names of a message's properties that its sender did not set.
func (r *Report) Extra(properties map[string]string) {
	known := Sample{}.Properties()
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for name := range properties {
		if _, sent := known[name]; !sent {
			r.extraProperties[name] = true
		}
	}
	r.extra["extra_properties"] = strings.Join(slices.Sorted(maps.Keys(r.extraProperties)), ", ")
}

// Received takes one message of the only receiver.
func (r *Report) Received(body []byte, tag string, keys []string, properties map[string]string) {
	r.ReceivedBy(0, body, tag, keys, properties)
}

// ReceivedBy takes one message; messages of other runs are not ours to judge.
func (r *Report) ReceivedBy(receiver int, body []byte, tag string, keys []string, properties map[string]string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if properties["run"] != r.options.Run {
		return
	}
	index, _ := strconv.Atoi(properties["index"])
	r.received++
	if index >= r.options.Count || !r.options.Expects(index) {
		r.wrong = append(r.wrong, fmt.Sprintf("a message that must not arrive did: %d", index))
		return
	}
	one := copyOf{receiver, index}
	again := !r.missing[one]
	delete(r.missing, one)
	if again {
		r.duplicates++
	}
	sample := Sample{r.options.Run, index, r.options.Size}
	r.compare(index, "body", bytes.Equal(body, sample.Body()), len(body))
	r.compare(index, "tag", tag == sample.Tag(), tag)
	expected := sample.Keys()
	got := slices.Clone(keys)
	slices.Sort(expected)
	slices.Sort(got)
	r.compare(index, "keys", slices.Equal(expected, got), keys)
	for key, value := range sample.Properties() {
		r.compare(index, key, properties[key] == value, properties[key])
	}
	if strings.HasPrefix(r.options.Kind, "fifo") && !again {
		group := fmt.Sprint(receiver, sample.Group())
		last, seen := r.lastOfGroup[group]
		r.compare(index, "order", !seen || last < index, last)
		r.lastOfGroup[group] = index
	}
	if r.options.Kind == "delay" && !r.firstSend.IsZero() {
		// The broker's timer works in whole seconds.
		waited := time.Since(r.firstSend).Milliseconds()
		r.compare(index, "delay", waited >= int64(r.options.Delay)-1000, waited)
	}
}

func (r *Report) compare(index int, what string, same bool, got any) {
	if !same {
		r.wrong = append(r.wrong, fmt.Sprintf("%d %s: %v", index, what, got))
	}
}

// Await waits for every message, then a moment longer for duplicates.
func (r *Report) Await() {
	deadline := time.Now().Add(time.Duration(r.options.Timeout) * time.Second)
	for time.Now().Before(deadline) && r.left() > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	r.took = time.Since(r.begin)
	time.Sleep(time.Second)
}

func (r *Report) left() int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return len(r.missing) + len(r.unseen)
}

// Put adds a field to the report.
func (r *Report) Put(key string, value any) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.extra[key] = value
}

// Failed records why the run broke off.
func (r *Report) Failed(err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if err != nil && r.failure == "" {
		r.failure = err.Error()
	}
}

// Rate records the throughput of a bench.
func (r *Report) Rate(messages int, took time.Duration, failures int) {
	r.extra["messages"] = messages
	r.extra["failures"] = failures
	r.extra["bench_seconds"] = took.Seconds()
	r.extra["per_second"] = int(float64(messages) / took.Seconds())
}

// Exit prints the report as one JSON line and ends the program.
func (r *Report) Exit() {
	r.mutex.Lock()
	o := r.options
	// A client may take long to shut down; that is not counted.
	if r.took == 0 {
		r.took = time.Since(r.begin)
	}
	ok := r.failure == "" && len(r.missing) == 0 && len(r.unseen) == 0 && len(r.wrong) == 0 &&
		(o.AllowDuplicates || r.duplicates == 0) &&
		(o.Action != "produce" && o.Action != "roundtrip" || r.sent == o.Count+o.RolledBack())
	line := map[string]any{
		"client": r.client, "action": o.Action, "kind": o.Kind, "mode": o.Mode, "ok": ok,
		"sent": r.sent, "received": r.received, "duplicates": r.duplicates,
		"missing": len(r.missing), "unseen": strings.Join(slices.Sorted(maps.Keys(r.unseen)), ", "), "wrong": len(r.wrong), "first_wrong": "", "error": r.failure,
		"seconds": float64(r.took.Milliseconds()) / 1000,
	}
	if len(r.wrong) > 0 {
		line["first_wrong"] = r.wrong[0]
	}
	for key, value := range r.extra {
		line[key] = value
	}
	text, _ := json.Marshal(line)
	fmt.Println(string(text))
	if !ok {
		os.Exit(1)
	}
	os.Exit(0)
}
