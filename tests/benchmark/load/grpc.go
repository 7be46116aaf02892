package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"time"

	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
	"google.golang.org/grpc"
	security "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"
)

// What the official Go client 5.1.4 does.
const (
	clientVersion   = "5.1.4"
	requestTimeout  = 3 * time.Second
	heartbeatEvery  = 10 * time.Second
	farewell        = 2 * time.Second
	dateTime        = "20060102T150405Z"
	longPolling     = 20 * time.Second // what servers tell push consumers
	receiveDeadline = longPolling + requestTimeout
	invisible       = time.Minute // of what simple consumers receive
)

// member is one gRPC client: a connection of its own, a telemetry stream on it, heartbeats.
type member struct {
	opts      *options
	id        string
	kind      v2.ClientType
	group     *v2.Resource // of consumers
	topic     *v2.Resource
	endpoints *v2.Endpoints
	conn      *grpc.ClientConn
	stub      v2.MessagingServiceClient
	ctx       context.Context // ends with the member
	leave     context.CancelFunc
}

// join connects a client and announces it as official clients do: route, telemetry with its settings, heartbeat.
func join(opts *options, index int, kind v2.ClientType) (*member, error) {
	endpoints, err := endpointsOf(opts.endpoint)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("passthrough:///"+opts.endpoint, grpc.WithTransportCredentials(transport()))
	if err != nil {
		return nil, err
	}
	m := &member{
		opts: opts, kind: kind, endpoints: endpoints, conn: conn,
		id:    fmt.Sprintf("bench@%d@%d@%08x", os.Getpid(), index, rand.Uint32()),
		topic: &v2.Resource{Name: opts.topicNames()[0]},
		stub:  v2.NewMessagingServiceClient(conn),
	}
	if kind != v2.ClientType_PRODUCER {
		m.group = &v2.Resource{Name: opts.group}
	}
	m.ctx, m.leave = context.WithCancel(context.Background())
	if err := m.announce(); err != nil {
		m.leave()
		conn.Close()
		return nil, err
	}
	go m.beat()
	return m, nil
}

func transport() security.TransportCredentials {
	if secure {
		return security.NewTLS(tlsConfig.Clone())
	}
	return insecure.NewCredentials()
}

func endpointsOf(address string) (*v2.Endpoints, error) {
	host, word, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseInt(word, 10, 32)
	if err != nil {
		return nil, err
	}
	scheme := v2.AddressScheme_IPv4
	if net.ParseIP(host) == nil {
		scheme = v2.AddressScheme_DOMAIN_NAME
	}
	return &v2.Endpoints{Scheme: scheme, Addresses: []*v2.Address{{Host: host, Port: int32(port)}}}, nil
}

// signed adds the metadata that every call carries.
func (m *member) signed(ctx context.Context) context.Context {
	now := time.Now().Format(dateTime)
	words := []string{
		"x-mq-language", "GO",
		"x-mq-protocol", "v2",
		"x-mq-request-id", requestID(),
		"x-mq-client-version", clientVersion,
		"x-mq-client-id", m.id,
		"x-mq-namespace", "",
		"x-mq-date-time", now,
	}
	if header := identity.authorization(now); header != "" {
		words = append(words, "authorization", header)
	}
	return metadata.AppendToOutgoingContext(ctx, words...)
}

// requestID is a random UUID of version 4.
func requestID() string {
	high, low := rand.Uint64(), rand.Uint64()
	high = high&^0xf000 | 0x4000
	low = low&^(3<<62) | 2<<62
	raw := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, high), low)
	return fmt.Sprintf("%x-%x-%x-%x-%x", raw[:4], raw[4:6], raw[6:8], raw[8:10], raw[10:])
}

// call is the context of one unary call.
func (m *member) call() (context.Context, context.CancelFunc) {
	return context.WithTimeout(m.signed(context.Background()), requestTimeout)
}

func (m *member) announce() error {
	ctx, done := m.call()
	defer done()
	route, err := m.stub.QueryRoute(ctx, &v2.QueryRouteRequest{Topic: m.topic, Endpoints: m.endpoints}, grpc.WaitForReady(true))
	if err := outcome("the route request", route, err); err != nil {
		return err
	}
	if err := m.tellSettings(); err != nil {
		return err
	}
	return m.heartbeat()
}

// tellSettings opens the telemetry stream, sends the settings and waits for the server's.
func (m *member) tellSettings() error {
	stream, err := m.stub.Telemetry(m.signed(m.ctx))
	if err != nil {
		return err
	}
	command := &v2.TelemetryCommand{Command: &v2.TelemetryCommand_Settings{Settings: m.settings()}}
	if err := stream.Send(command); err != nil {
		return fmt.Errorf("telemetry: %w", err)
	}
	settled := make(chan error, 1)
	go func() {
		for {
			answer, err := stream.Recv()
			if err == nil && answer.GetSettings() == nil && answer.GetStatus() != nil {
				err = outcome("telemetry", answer, nil)
			}
			if err != nil || answer.GetSettings() != nil {
				select {
				case settled <- err:
				default: // only the first answer is waited for
				}
			}
			if err != nil {
				return
			}
		}
	}()
	select {
	case err := <-settled:
		if err != nil {
			return fmt.Errorf("telemetry: %w", err)
		}
		return nil
	case <-time.After(requestTimeout):
		return errors.New("no settings came over telemetry")
	}
}

func (m *member) settings() *v2.Settings {
	host, _ := os.Hostname()
	settings := &v2.Settings{
		ClientType:     &m.kind,
		AccessPoint:    m.endpoints,
		RequestTimeout: durationpb.New(requestTimeout),
		UserAgent: &v2.UA{
			Language: v2.Language_GOLANG, Version: clientVersion, Platform: "linux", Hostname: host,
		},
	}
	if m.kind == v2.ClientType_PRODUCER {
		settings.PubSub = &v2.Settings_Publishing{Publishing: &v2.Publishing{Topics: []*v2.Resource{m.topic}}}
		settings.BackoffPolicy = &v2.RetryPolicy{
			MaxAttempts: 3,
			Strategy: &v2.RetryPolicy_ExponentialBackoff{ExponentialBackoff: &v2.ExponentialBackoff{
				Initial: durationpb.New(0), Max: durationpb.New(0), Multiplier: 1,
			}},
		}
		return settings
	}
	settings.PubSub = &v2.Settings_Subscription{Subscription: &v2.Subscription{
		Group:              m.group,
		Subscriptions:      []*v2.SubscriptionEntry{{Topic: m.topic, Expression: everything()}},
		LongPollingTimeout: durationpb.New(longPolling),
	}}
	return settings
}

func everything() *v2.FilterExpression {
	return &v2.FilterExpression{Type: v2.FilterType_TAG, Expression: "*"}
}

func (m *member) heartbeat() error {
	ctx, done := m.call()
	defer done()
	answer, err := m.stub.Heartbeat(ctx, &v2.HeartbeatRequest{Group: m.group, ClientType: m.kind})
	return outcome("a heartbeat", answer, err)
}

// beat keeps the member registered; a heartbeat that fails shows in the calls after it.
func (m *member) beat() {
	ticker := time.NewTicker(heartbeatEvery)
	defer ticker.Stop()
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-ticker.C:
			_ = m.heartbeat()
		}
	}
}

// Close takes leave of the server and closes the connection.
func (m *member) Close() error {
	ctx, done := context.WithTimeout(m.signed(context.Background()), farewell)
	defer done()
	// The load is over: whether the server hears of it changes nothing.
	_, _ = m.stub.NotifyClientTermination(ctx, &v2.NotifyClientTerminationRequest{Group: m.group})
	m.leave()
	return m.conn.Close()
}

// answer is what every response of the service has.
type answer interface{ GetStatus() *v2.Status }

// refusal is an answer with another code than OK.
type refusal struct {
	what    string
	code    v2.Code
	message string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("%s was answered %v: %s", r.what, r.code, r.message)
}

// outcome is an error unless the call was answered with code OK.
func outcome(what string, found answer, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if status := found.GetStatus(); status.GetCode() != v2.Code_OK {
		return &refusal{what, status.GetCode(), status.GetMessage()}
	}
	return nil
}
