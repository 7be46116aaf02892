// Load puts load on a RocketMQ broker or proxy over the remoting protocol or gRPC, or on a bare gRPC
// server, and prints what it measured as one line of JSON.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

const usage = `usage: load OPERATION [OPTION…]

send-sync     each connection waits for an answer before it sends the next message
send-async    each connection keeps --window messages in flight
pull          each connection pulls the topic's queues again and again
pop-ack       each connection pops its share of the queues to their end and acknowledges every message
idle          connections that only send heartbeats
slow-reader   connections that ask for messages and never read the answers
flood         connections that send as fast as they can and wait for nothing

grpc-send-sync, grpc-send-async   as above, over gRPC
grpc-send-fifo                    each request in flight has its own message group
grpc-receive-ack                  push consumers; every message is acknowledged by a call of its own
grpc-simple-ack                   simple consumers instead
grpc-mixed                        half of the connections send what the others receive and acknowledge

echo          unary calls to a bare gRPC server, --window in flight on each connection
echo-stream   calls that are answered by a stream of messages
echo-idle     connections with one open stream each that stay silent
echo-serve    the bare gRPC server itself, until its input closes

options:
`

// options are what the command line says.
type options struct {
	operation    string
	namesrv      string
	endpoint     string
	dialEndpoint bool
	topic        string
	group        string
	size         int
	connections  int
	window       int
	messages     int64
	duration     time.Duration
	warmup       time.Duration
	timeout      time.Duration
	interval     time.Duration
	groups       int
	discard      bool
	rate         float64
	topics       int
}

// operations do the work and fill in the report.
var operations = map[string]func(*options, *report) error{
	"send-sync":   sendMessages,
	"send-async":  sendMessages,
	"pull":        pullMessages,
	"pop-ack":     popMessages,
	"idle":        stayIdle,
	"slow-reader": neverRead,
	"flood":       neverWait,

	"grpc-send-sync":   grpcSend,
	"grpc-send-async":  grpcSend,
	"grpc-send-fifo":   grpcSend,
	"grpc-receive-ack": grpcReceive,
	"grpc-simple-ack":  grpcReceive,
	"grpc-mixed":       grpcMixed,

	"echo":        echo,
	"echo-stream": echoStream,
	"echo-idle":   echoIdle,
	"echo-serve":  echoServe,
}

func main() {
	opts, err := parse(os.Args[1:])
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "load:", err)
		}
		os.Exit(2)
	}
	rep := &report{Operation: opts.operation, Size: opts.size, Connections: opts.connections, Window: opts.window}
	if err := operations[opts.operation](opts, rep); err != nil {
		rep.addError(err.Error())
	}
	if err := json.NewEncoder(os.Stdout).Encode(rep); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	if rep.Errors > 0 {
		os.Exit(1)
	}
}

func parse(words []string) (*options, error) {
	opts := &options{}
	set := flag.NewFlagSet("load", flag.ContinueOnError)
	set.StringVar(&opts.namesrv, "namesrv", "", "where to ask for the route, `HOST:PORT`; of a proxy its only address")
	set.StringVar(&opts.endpoint, "endpoint", "", "where the data goes, `HOST:PORT`; asked for the route too if there is no --namesrv")
	set.BoolVar(&opts.dialEndpoint, "dial-endpoint", false, "dial --endpoint instead of the address in the route")
	set.StringVar(&opts.topic, "topic", "bench", "topic")
	set.StringVar(&opts.group, "group", "bench", "producer or consumer group")
	set.IntVar(&opts.size, "size", 300, "`bytes` of a message body")
	set.IntVar(&opts.connections, "connections", 0, "connections (sync 16, others 4)")
	set.IntVar(&opts.window, "window", 0, "requests in flight on a connection (sync 1, others 32)")
	set.Int64Var(&opts.messages, "messages", 0, "stop after so many messages, warm-up included; 0 means no limit")
	seconds := set.Float64("seconds", 0, "stop after so many seconds, warm-up excluded; 0 means no limit")
	warmup := set.Float64("warmup", 0, "`seconds` at the start that are not measured")
	timeout := set.Float64("timeout", 10, "`seconds` without any answer that end a run; of a heartbeat, what counts as in time")
	interval := set.Float64("interval", 30, "`seconds` between the heartbeats of an idle connection")
	set.IntVar(&opts.groups, "groups", 0, "consumer groups that idle connections share; 0 gives each its own")
	set.BoolVar(&opts.discard, "discard", false, "flood: read the answers and throw them away")
	set.Float64Var(&opts.rate, "rate", 0, "sends and grpc-mixed: messages per second that arrive whatever the answers do; latencies count from the time of arrival (0: as fast as answers come)")
	set.IntVar(&opts.topics, "topics", 0, "sends: `number` of topics, TOPIC-0 and so on, in turn; 0 means the one named TOPIC")
	set.BoolVar(&secure, "tls", false, "connect with TLS, without verifying the certificate")
	set.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		set.PrintDefaults()
	}
	if len(words) == 0 {
		set.Usage()
		return nil, flag.ErrHelp
	}
	if _, known := operations[words[0]]; !known {
		set.Usage()
		return nil, fmt.Errorf("no operation %q", words[0])
	}
	opts.operation = words[0]
	if err := set.Parse(words[1:]); err != nil {
		return nil, flag.ErrHelp // the flag set has printed it
	}
	opts.duration, opts.warmup = inSeconds(*seconds), inSeconds(*warmup)
	opts.timeout, opts.interval = inSeconds(*timeout), inSeconds(*interval)
	opts.fillIn()
	return opts, opts.check(set.Args())
}

func inSeconds(value float64) time.Duration { return time.Duration(value * float64(time.Second)) }

// fillIn sets the defaults that depend on the operation.
func (o *options) fillIn() {
	if o.namesrv == "" {
		o.namesrv = o.endpoint
	}
	if o.connections == 0 {
		o.connections = 4
		if strings.HasSuffix(o.operation, "send-sync") {
			o.connections = 16
		}
	}
	switch {
	case strings.HasSuffix(o.operation, "send-sync") || o.operation == "pull":
		o.window = 1
	case o.window == 0:
		o.window = 32
	}
}

// topicNames are the topics to send to.
func (o *options) topicNames() []string {
	if o.topics == 0 {
		return []string{o.topic}
	}
	names := make([]string, o.topics)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", o.topic, i)
	}
	return names
}

func (o *options) check(rest []string) error {
	unbounded := o.duration == 0 && o.messages == 0
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected %q", rest[0])
	case o.namesrv == "":
		return errors.New("--namesrv or --endpoint is needed")
	case o.dialEndpoint && o.endpoint == "":
		return errors.New("--dial-endpoint needs --endpoint")
	case o.connections < 1 || o.window < 1 || o.size < 0:
		return errors.New("--connections and --window are at least 1, --size at least 0")
	case o.rate < 0 || o.topics < 0:
		return errors.New("--rate and --topics are at least 0")
	case o.rate > 0 && !strings.Contains(o.operation, "send") && o.operation != "grpc-mixed":
		return errors.New("--rate is for sends and grpc-mixed")
	case o.duration == 0 && slices.Contains([]string{"idle", "slow-reader", "flood", "echo-idle"}, o.operation):
		return errors.New("--seconds is needed")
	case o.messages == 0 && slices.Contains([]string{"grpc-receive-ack", "grpc-simple-ack", "grpc-mixed"}, o.operation):
		return errors.New("--messages is needed")
	case unbounded && o.operation != "pop-ack" && o.operation != "echo-serve":
		return errors.New("--messages or --seconds is needed")
	}
	return nil
}
