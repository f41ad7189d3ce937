package node

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	v1 "k8s.io/api/core/v1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	remoteclient "k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"github.com/kemudi/kemudi/internal/kubelet/apitest"
)

// e2eStreams runs commands on terminals and attaches as older clients do.
func e2eStreams(t *testing.T, m *machine) {
	apitest.CreatePod(t, m.api, "streams", `{terminationGracePeriodSeconds: 0, containers: [{name: c, image: `+busybox+`, command: [sh, -c, "while :; do echo tick; sleep 0.2; done"]}]}`)
	m.ready("streams")
	server := httptest.NewServer(m.agent.Handler())
	defer server.Close()
	for _, tc := range []struct {
		name, command, input, want string
		code                       int
	}{
		{"without any input", "sleep 0.5; echo all of it; exit 3", "", "all of it\r\n", 3},
		{"with all of its input", "read line; sleep 0.5; echo got $line", "a word\n", "a word\r\ngot a word\r\n", 0},
	} {
		query := url.Values{"command": {"sh", "-c", tc.command}, "input": {"1"}, "output": {"1"}, "tty": {"1"}}
		where, err := url.Parse(server.URL + "/exec/default/streams/c?" + query.Encode())
		if err != nil {
			t.Fatal(err)
		}
		client, err := remoteclient.NewSPDYExecutor(&restclient.Config{}, http.MethodPost, where)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err = client.StreamWithContext(t.Context(), remoteclient.StreamOptions{Stdin: strings.NewReader(tc.input), Stdout: &out, Tty: true})
		var exit exec.CodeExitError
		if code := 0; errors.As(err, &exit) {
			if code = exit.Code; code != tc.code {
				t.Errorf("a terminal %s: got exit code %d, want %d", tc.name, code, tc.code)
			}
		} else if err != nil || tc.code != 0 {
			t.Errorf("a terminal %s: got %v, want exit code %d", tc.name, err, tc.code)
		}
		if out.String() != tc.want {
			t.Errorf("a terminal %s: got %q, want %q", tc.name, out.String(), tc.want)
		}
	}
	e2eStreamsOfToday(t, server.URL)
	where := "ws" + strings.TrimPrefix(server.URL, "http") + "/attach/default/streams/c?output=1"
	conn, _, err := (&websocket.Dialer{Subprotocols: []string{"v4.channel.k8s.io"}}).DialContext(t.Context(), where, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for {
		_, data, err := conn.ReadMessage()
		if err != nil {
			t.Fatalf("attach over WebSocket: %v", err)
		}
		if len(data) > 1 {
			if string(data) != "\x01tick\n" {
				t.Errorf("attach over WebSocket: got %q", data)
			}
			break
		}
	}
	apitest.DeletePod(t, m.api, "streams", 0)
	m.wait("streams", "gone", func(p *v1.Pod) bool { return p == nil })
}

// e2eStreamsOfToday has the agent itself take what today's clients open by WebSocket.
func e2eStreamsOfToday(t *testing.T, agent string) {
	query := url.Values{"command": {"sh", "-c", "cat; echo done >&2; exit 4"}, "input": {"1"}, "output": {"1"}, "error": {"1"}}
	client, err := remoteclient.NewWebSocketExecutor(&restclient.Config{}, http.MethodGet, agent+"/exec/default/streams/c?"+query.Encode())
	if err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	err = client.StreamWithContext(t.Context(), remoteclient.StreamOptions{Stdin: strings.NewReader("all of the input"), Stdout: &out, Stderr: &errOut})
	var exit exec.CodeExitError
	if !errors.As(err, &exit) || exit.Code != 4 || out.String() != "all of the input" || errOut.String() != "done\n" {
		t.Errorf("exec over WebSocket 5: got %v, %q and %q", err, out.String(), errOut.String())
	}
	where, err := url.Parse(agent + "/portForward/default/streams")
	if err != nil {
		t.Fatal(err)
	}
	dialer, err := portforward.NewSPDYOverWebsocketDialer(where, &restclient.Config{})
	if err != nil {
		t.Fatal(err)
	}
	conn, protocol, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil || protocol != portforward.PortForwardProtocolV1Name {
		t.Fatalf("port-forward over WebSocket: got %q, %v", protocol, err)
	}
	defer conn.Close()
	headers := http.Header{}
	headers.Set(v1.PortHeader, "7")
	headers.Set(v1.PortForwardRequestIDHeader, "1")
	headers.Set(v1.StreamType, v1.StreamTypeError)
	told, err := conn.CreateStream(headers)
	if err != nil {
		t.Fatal(err)
	}
	headers.Set(v1.StreamType, v1.StreamTypeData)
	if _, err := conn.CreateStream(headers); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(told); err != nil || !strings.Contains(string(got), "connection refused") {
		t.Errorf("port-forward to where nobody listens: got %q, %v", got, err)
	}
}
