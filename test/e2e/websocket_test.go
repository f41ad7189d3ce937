package e2e

import (
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
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
	c.askOddly(t, pod)
	trace.Proves(t, "C-300")
	if got := strings.Join(c.webSocket(t, "binary.k8s.io", pod+"log?container=main&limitBytes=19"), ""); got != "container is alive\n" {
		t.Errorf("log: got %q", got)
	}
}

// askOddly asks for commands as old clients and mistaken ones do, whose answers people know from other clusters.
func (c *cluster) askOddly(t *testing.T, pod string) {
	t.Helper()
	query := func(script string, on ...string) string {
		q := url.Values{"container": {"main"}, "stdout": {"1"}, "command": {"sh", "-c", script}}
		for _, name := range on {
			q.Set(name, "1")
		}
		return pod + "exec?" + q.Encode()
	}
	const failed = `"message":"command terminated with non-zero exit code: command terminated with exit code 5","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"5"}]}`
	for _, ask := range []struct{ protocol, path, want string }{
		{"channel.k8s.io", query("exit 5"), "3command terminated with non-zero exit code: command terminated with exit code 5"},
		{"v4.channel.k8s.io", query("exit 5"), `3{"status":"Failure",` + failed + "}"},
		{"v5.channel.k8s.io", query("exit 5"), `3{"metadata":{},"status":"Failure",` + failed + "}"},
		{"v5.channel.k8s.io", query("echo out; echo err >&2", "tty", "stderr"), "1out\r\nerr\r\n 3{\"metadata\":{},\"status\":\"Success\"}"},
		{"v4.channel.k8s.io", query("cat; echo end"), "1end\n 3{\"status\":\"Success\"}"},
	} {
		out := map[byte]string{}
		for _, message := range c.webSocket(t, ask.protocol, ask.path) {
			if len(message) > 1 {
				out[message[0]] += message[1:]
			}
		}
		var got []string
		for _, channel := range slices.Sorted(maps.Keys(out)) {
			got = append(got, string('0'+rune(channel))+out[channel])
		}
		if strings.Join(got, " ") != ask.want {
			t.Errorf("%s over %s: got %q, want %q", ask.path, ask.protocol, strings.Join(got, " "), ask.want)
		}
	}
	for _, ask := range []struct {
		protocol, path string
		code           int
		want           string
	}{
		{"v5.channel.k8s.io", pod + "exec?command=id", 400, "you must specify at least 1 of stdin, stdout, stderr"},
		{"v5.channel.k8s.io", pod + "exec?command=id&stdout=1&container=none", 400, "container none is not valid for pod talks"},
		{"v4.channel.k8s.io", pod + "portforward", 400, `query parameter "port" is required`},
		{"v4.channel.k8s.io", strings.Replace(pod, "talks", "nobody", 1) + "attach?stdout=1", 404, `pods \"nobody\" not found`},
	} {
		conn, answer, err := c.dialWebSocket(t, ask.protocol, ask.path)
		if err == nil {
			conn.Close()
			t.Errorf("%s over %s: was taken", ask.path, ask.protocol)
			continue
		}
		if answer == nil {
			t.Errorf("%s over %s: %v", ask.path, ask.protocol, err)
			continue
		}
		if body, _ := io.ReadAll(answer.Body); answer.StatusCode != ask.code || !strings.Contains(string(body), ask.want) {
			t.Errorf("%s over %s: got %d %s, want %d %s", ask.path, ask.protocol, answer.StatusCode, body, ask.code, ask.want)
		}
	}
}

// dialWebSocket opens a connection to a path.
func (c *cluster) dialWebSocket(t *testing.T, protocol, path string) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	config, err := rest.TLSConfigFor(c.config)
	if err != nil {
		t.Fatal(err)
	}
	dialer := websocket.Dialer{NetDialContext: c.config.Dial, TLSClientConfig: config, HandshakeTimeout: wait.Patience, Subprotocols: []string{protocol}}
	return dialer.DialContext(t.Context(), "wss"+strings.TrimPrefix(c.config.Host, "https")+path, nil)
}

// webSocket returns what the server says on a path until it closes the connection.
func (c *cluster) webSocket(t *testing.T, protocol, path string) (messages []string) {
	t.Helper()
	conn, answer, err := c.dialWebSocket(t, protocol, path)
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
