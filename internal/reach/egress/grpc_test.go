package egress

import (
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
)

// konnectivity is a proxy that speaks gRPC, and connects to what is asked for.
type konnectivity struct {
	client.UnimplementedProxyServiceServer
}

func (konnectivity) Proxy(s client.ProxyService_ProxyServer) error {
	var there net.Conn
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		p, err := s.Recv()
		if err != nil {
			if there != nil {
				there.Close()
			}
			return nil
		}
		switch p.Type {
		case client.PacketType_DIAL_REQ:
			q := p.GetDialRequest()
			answer := &client.DialResponse{ConnectID: 7, Random: q.Random}
			if there, err = net.Dial(q.Protocol, q.Address); err != nil {
				answer.Error = err.Error()
			}
			if err := s.Send(&client.Packet{Type: client.PacketType_DIAL_RSP, Payload: &client.Packet_DialResponse{DialResponse: answer}}); err != nil || there == nil {
				return err
			}
			wg.Go(func() {
				data, _ := io.ReadAll(there)
				_ = s.Send(&client.Packet{Type: client.PacketType_DATA, Payload: &client.Packet_Data{Data: &client.Data{ConnectID: 7, Data: data}}})
				_ = s.Send(&client.Packet{Type: client.PacketType_CLOSE_RSP, Payload: &client.Packet_CloseResponse{CloseResponse: &client.CloseResponse{ConnectID: 7}}})
			})
		case client.PacketType_DATA:
			if _, err := there.Write(p.GetData().Data); err != nil {
				return err
			}
		}
	}
}

func TestConnectionsGoByAProxyThatSpeaksGRPC(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	client.RegisterProxyServiceServer(server, konnectivity{})
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { server.Stop(); wg.Wait() })
	all, err := parse([]byte(head + "- {name: cluster, connection: {proxyProtocol: GRPC, transport: {uds: {udsName: " + socket + "}}}}"))
	p := all[Cluster]
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	p.Metrics = NewMetrics(reg)
	conn, err := p.Dial(t.Context(), echo(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "world\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); string(got) != "world\n" {
		t.Errorf("got %q, %v", got, err)
	}
	conn.Close()
	if _, err := p.Dial(t.Context(), "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got %v, want what the proxy says", err)
	}
	for metric, want := range map[string]float64{"apiserver_egress_dialer_dial_start_total": 2, "apiserver_egress_dialer_dial_failure_count": 1} {
		if got := counted(t, reg, metric, "uds"); got != want {
			t.Errorf("got %s %v, want %v", metric, got, want)
		}
	}
}
