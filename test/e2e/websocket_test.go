package e2e

import (
	"net/url"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// testWebSockets runs a command and reads a log as browsers do.
func testWebSockets(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	c.create(t, ns, `
metadata: {name: talks}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: kemudi.local/busybox:1, command: [sh, -c, 'echo container is alive; sleep 600']}]
`)
	c.await(t, ns, "talks", isReady)
	pod := "/api/v1/namespaces/" + ns + "/pods/talks/"
	command := url.Values{"container": {"main"}, "stdout": {"1"}, "stderr": {"1"}, "command": {"echo", "remote execution test"}}
	for _, protocol := range []string{"v4.channel.k8s.io", "v5.channel.k8s.io"} {
		out := map[byte]string{}
		for _, message := range c.webSocket(t, protocol, pod+"exec?"+command.Encode()) {
			if len(message) > 0 {
				out[message[0]] += message[1:]
			}
		}
		trace.Proves(t, "C-299")
		if out[1] != "remote execution test\n" || out[2] != "" || !strings.Contains(out[3], `"status":"Success"`) {
			t.Errorf("exec over %s: got %q on the channels, want the output on 1 and a success on 3", protocol, out)
		}
	}
	trace.Proves(t, "C-300")
	if got := strings.Join(c.webSocket(t, "binary.k8s.io", pod+"log?container=main&limitBytes=19"), ""); got != "container is alive\n" {
		t.Errorf("log: got %q", got)
	}
}

// webSocket returns what the server says on a path until it closes the connection.
func (c *cluster) webSocket(t *testing.T, protocol, path string) (messages []string) {
	t.Helper()
	config, err := rest.TLSConfigFor(c.config)
	if err != nil {
		t.Fatal(err)
	}
	dialer := websocket.Dialer{NetDialContext: c.config.Dial, TLSClientConfig: config, HandshakeTimeout: wait.Patience, Subprotocols: []string{protocol}}
	conn, answer, err := dialer.DialContext(t.Context(), "wss"+strings.TrimPrefix(c.config.Host, "https")+path, nil)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	defer conn.Close()
	if got := answer.Header.Get("Sec-WebSocket-Protocol"); got != protocol {
		t.Errorf("%s: got the protocol %q, want %q", path, got, protocol)
	}
	for {
		_, data, err := conn.ReadMessage()
		if websocket.IsCloseError(err, websocket.CloseNormalClosure) {
			return messages
		}
		if err != nil {
			t.Fatalf("%s: %v after %q", path, err, messages)
		}
		messages = append(messages, string(data))
	}
}
