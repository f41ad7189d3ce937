package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// TestMain lets the test binary be the agent: sub-commands print and exit.
func TestMain(m *testing.M) {
	if os.Getenv("AGENT_TEST_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// agent returns a command that runs the agent with the given arguments.
func agent(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "AGENT_TEST_MAIN=1")
	return cmd
}

// run runs the agent and returns what it prints and its exit code.
func run(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	data, err := agent(t, args...).CombinedOutput()
	if e, ok := err.(*exec.ExitError); ok {
		return string(data), e.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return string(data), 0
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(data)
}

func TestMounttestPrintsFactsInTheExpectedWords(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	out, code := run(t, "mounttest", "--new_file_0660="+file, "--file_mode="+file, "--file_perm="+file, "--file_owner="+file, "--fs_type=/dev/shm", "--file_content="+file)
	want := fmt.Sprintf("mount type of \"/dev/shm\": tmpfs\ncontent of file %[1]q: mount-tester new file\n\nmode of file %[1]q: -rw-rw----\nperms of file %[1]q: -rw-rw----\nowner UID of %[1]q: %[2]d\nowner GID of %[1]q: %[3]d\ncontent of file %[1]q: mount-tester new file\n\n", file, os.Getuid(), os.Getgid())
	if out != want || code != 0 {
		t.Errorf("got exit code %d and\n%swant\n%s", code, out, want)
	}
	out, code = run(t, "mounttest", "--file_content="+dir+"/none")
	if code != 1 || !strings.HasPrefix(out, `error reading file content for "`) {
		t.Errorf("missing file: got exit code %d and %q", code, out)
	}
}

func TestEntrypointTesterPrintsItsArguments(t *testing.T) {
	if out, code := run(t, "entrypoint-tester", "override", "--arguments"); code != 0 || out != "["+os.Args[0]+" entrypoint-tester override --arguments]\n" {
		t.Errorf("got exit code %d and %q", code, out)
	}
}

func TestPauseSaysSoAndEndsOnASignal(t *testing.T) {
	cmd := agent(t, "pause")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 7)
	if _, err := io.ReadFull(stdout, line); err != nil || string(line) != "Paused\n" {
		t.Errorf("got %q, %v; want Paused", line, err)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if cmd.Wait(); cmd.ProcessState.ExitCode() != 2 {
		t.Errorf("exit code after SIGTERM: got %d, want 2", cmd.ProcessState.ExitCode())
	}
}

func TestLogsGeneratorNumbersItsLines(t *testing.T) {
	out, code := run(t, "logs-generator", "-t", "3", "-d", "30ms")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	want := regexp.MustCompile(`^\S+Z 2 (GET|POST|PUT) /api/v1/namespaces/[a-z-]+/endpoints/[a-z0-9]{3,5} [2-5]\d\d$`)
	if code != 0 || len(lines) != 3 || !want.MatchString(lines[2]) {
		t.Errorf("got exit code %d and %q, want three lines, the last like %s", code, lines, want)
	}
	if _, code := run(t, "logs-generator"); code == 0 {
		t.Error("no number of lines is accepted")
	}
}

func TestUnknownCommandsFail(t *testing.T) {
	if out, code := run(t, "nothing"); code != 1 || !strings.Contains(out, `unknown command "nothing"`) {
		t.Errorf("got exit code %d and %q", code, out)
	}
}

func TestConnectSaysWhyItFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	open := l.Addr().String()
	if out, code := run(t, "connect", open); code != 0 || out != "" {
		t.Errorf("open port: got exit code %d and %q", code, out)
	}
	l.Close()
	if out, code := run(t, "connect", "--timeout=2s", open); code != 1 || out != "REFUSED\n" {
		t.Errorf("closed port: got exit code %d and %q", code, out)
	}
	if out, code := run(t, "connect", "nonsense"); code != 1 || !strings.HasPrefix(out, "UNKNOWN: ") {
		t.Errorf("no port: got exit code %d and %q", code, out)
	}
	if out, code := run(t, "connect", "no-such-host.invalid:1"); code != 1 || !strings.HasPrefix(out, "DNS: ") {
		t.Errorf("no such host: got exit code %d and %q", code, out)
	}
}

func TestNetexecDoesWhatItIsTold(t *testing.T) {
	s := &netexecServer{}
	srv := httptest.NewServer(s.handler())
	defer srv.Close()
	if status, _ := get(t, srv.URL+"/healthz"); status != http.StatusPreconditionFailed {
		t.Errorf("healthz before UDP is up: got %d, want 412", status)
	}
	s.udpReady.Store(true)
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go serveUDPUntilClosed(udp)
	defer udp.Close()
	web, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	udpPort := udp.LocalAddr().(*net.UDPAddr).Port
	for _, c := range []struct {
		path   string
		status int
		want   string
	}{
		{"/", 200, `^NOW: `},
		{"/hostname", 200, "^" + hostname() + "$"},
		{"/hostName", 200, "^" + hostname() + "$"},
		{"/clientip", 200, `^127\.0\.0\.1:\d+$`},
		{"/serverport", 200, "^" + web.Port() + "$"},
		{"/healthz", 200, "^$"},
		{"/echo?msg=hello&code=418", 418, "^hello$"},
		{"/echo?msg=hello&code=x", 200, "^argument 'code' must be an integer or empty, got \"x\"\n$"},
		{"/redirect?location=/echo%3Fmsg=a&code=307", 307, "/echo"},
		{"/shell?cmd=echo+hi", 200, `^{"output":"hi\\n"}$`},
		{"/shell?shellCommand=exit+3", 417, `^{"error":"exit status 3"}$`},
		{"/dial?host=127.0.0.1&port=" + web.Port() + "&request=echo%3Fmsg%3Dhi&tries=2", 200, `^{"responses":\["hi","hi"\]}$`},
		{fmt.Sprintf("/dial?host=127.0.0.1&port=%d&protocol=udp&request=hostname", udpPort), 200, `^{"responses":\["` + hostname() + `"\]}$`},
		{fmt.Sprintf("/dial?host=127.0.0.1&port=%d&protocol=udp&request=clientip", udpPort), 200, `^{"responses":\["127\.0\.0\.1:\d+"\]}$`},
		{"/dial?host=127.0.0.1&port=1&request=hostname", 417, `^{"errors":\[".*connection refused"\]}$`},
		{"/dial?host=127.0.0.1&port=1", 400, "request parameter not specified"},
		{"/dial?host=127.0.0.1&port=1&request=a&tries=x", 400, "tries parameter is invalid"},
		{"/dial?host=127.0.0.1&port=1&request=a&protocol=smoke", 400, "unsupported protocol. smoke"},
		{"/dial?host=no-such-host.invalid&port=1&request=a", 400, "host and/or port param are invalid"},
	} {
		status, body := get(t, srv.URL+c.path)
		if status != c.status || !regexp.MustCompile(c.want).MatchString(body) {
			t.Errorf("%s: got %d %q, want %d %s", c.path, status, body, c.status, c.want)
		}
	}
	override := httptest.NewServer(overridden(s.handler(), "/echo?msg=same&code=404"))
	defer override.Close()
	if status, body := get(t, override.URL+"/hostname"); status != 404 || body != "same" {
		t.Errorf("overridden: got %d %q", status, body)
	}
}

// serveUDPUntilClosed is serveUDP for a socket that the test closes.
func serveUDPUntilClosed(c net.PacketConn) {
	buf := make([]byte, 2048)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		c.WriteTo([]byte(udpAnswer(string(buf[:n]), from)), from)
	}
}

func TestLivenessFailsAfterTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := livenessHandler(time.Now())
		status := func() int {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/healthz", nil))
			return w.Code
		}
		if got := status(); got != 200 {
			t.Errorf("at once: got %d", got)
		}
		<-time.After(11 * time.Second)
		if got := status(); got != 500 {
			t.Errorf("after 11 s: got %d", got)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/slow-response?code=201&size=1&interval=2", nil))
		if w.Code != 201 || w.Body.Len() != 1024 {
			t.Errorf("slow response: got %d with %d bytes", w.Code, w.Body.Len())
		}
	})
}

func TestGRPCHealthTurnsUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &healthServer{started: time.Now(), service: "s", unhealthyAfter: 5}
		check := func(service string) string {
			res, err := h.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
			if err != nil {
				return status.Code(err).String()
			}
			return res.Status.String()
		}
		if got := check("s") + " " + check("other"); got != "SERVING NotFound" {
			t.Errorf("at once: got %s", got)
		}
		<-time.After(6 * time.Second)
		if got := check("s"); got != "NOT_SERVING" {
			t.Errorf("after 6 s: got %s", got)
		}
		h.unhealthyAfter = -1
		no := false
		h.forced.Store(&no)
		if got := check("s"); got != "NOT_SERVING" {
			t.Errorf("told not to serve: got %s", got)
		}
	})
}

func TestPorterAnswersWithTheValue(t *testing.T) {
	w := httptest.NewRecorder()
	porterHandler("foo", false).ServeHTTP(w, httptest.NewRequest("GET", "/any", nil))
	if w.Body.String() != "foo" {
		t.Errorf("got %q", w.Body)
	}
	w = httptest.NewRecorder()
	porterHandler("foo", true).ServeHTTP(w, httptest.NewRequest("PATCH", "/any", nil))
	var got struct{ Method, Body string }
	if err := json.NewDecoder(w.Body).Decode(&got); err != nil || got.Method != "PATCH" || got.Body != "foo" {
		t.Errorf("as JSON: got %v, %v", got, err)
	}
}

// A rolling update sends SIGTERM while the proxies still send requests.
func TestWebServesWhileItDrains(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	base := "http://" + l.Addr().String()
	s := &webServer{version: "1"}
	ctx, term := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.serve(ctx, l, 300*time.Millisecond, 5*time.Second) }()
	if status, body := get(t, base+"/"); status != 200 || body != hostname()+" 127.0.0.1 1\n" {
		t.Errorf("got %d %q", status, body)
	}
	if status, _ := get(t, base+"/readyz"); status != 200 {
		t.Errorf("readyz: got %d", status)
	}
	slow := make(chan string, 1)
	go func() {
		res, err := http.Get(base + "/slow?for=600ms")
		if err != nil {
			slow <- err.Error()
			return
		}
		defer res.Body.Close()
		data, _ := io.ReadAll(res.Body)
		slow <- string(data)
	}()
	term()
	for status := 200; status != http.StatusServiceUnavailable; status, _ = get(t, base+"/readyz") {
	}
	if status, _ := get(t, base+"/"); status != 200 {
		t.Errorf("request while draining: got %d", status)
	}
	if status, _ := get(t, base+"/healthz"); status != 200 {
		t.Errorf("healthz while draining: got %d", status)
	}
	if err := <-done; err != nil {
		t.Errorf("end: %v", err)
	}
	if got := <-slow; got != "slept 600ms\n" {
		t.Errorf("request that was running: got %q", got)
	}
	if _, err := http.Get(base); err == nil {
		t.Error("still serving after the end")
	}
}

func TestCurlBehavesLikeCurl(t *testing.T) {
	srv := httptest.NewServer((&netexecServer{}).handler())
	defer srv.Close()
	curlLink := filepath.Join(t.TempDir(), "curl")
	if err := os.Symlink(os.Args[0], curlLink); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"-q -s --connect-timeout 5 " + srv.URL + "/echo?msg=hi", 0, "hi"},
		{"-s -o /dev/null -w %{http_code} " + srv.URL + "/echo?code=404", 0, "404"},
		{"-sSf " + srv.URL + "/echo?code=404", 22, "curl: (22) The requested URL returned error: 404\n"},
		{"-s http://127.0.0.1:1/", 7, ""},
		{"-s http://no-such-host.invalid/", 6, ""},
		{"-s -X POST -d msg=posted " + srv.URL + "/echo", 0, "posted"},
		{"-s -L " + srv.URL + "/redirect?location=/echo%3Fmsg=there", 0, "there"},
	} {
		cmd := exec.CommandContext(t.Context(), curlLink, strings.Fields(c.args)...)
		cmd.Env = append(os.Environ(), "AGENT_TEST_MAIN=1")
		out, _ := cmd.CombinedOutput()
		if string(out) != c.want || cmd.ProcessState.ExitCode() != c.code {
			t.Errorf("curl %s: got %q and exit code %d, want %q and %d", c.args, out, cmd.ProcessState.ExitCode(), c.want, c.code)
		}
	}
}
