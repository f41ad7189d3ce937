package apiserver

import (
	"cmp"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// otherwise are the tests of h2spec that Go's HTTP/2 server does not pass, with or
// without package h2, and why that is right.
var otherwise = map[string]string{
	"Sends a large size HEADERS frame that exceeds the SETTINGS_MAX_FRAME_SIZE":                    "it has 17 KiB; the server's settings allow 256",
	"Sends multiple values of SETTINGS_INITIAL_WINDOW_SIZE":                                        "who sends a setting twice is cut off, as an attack",
	"Sends a HEADERS frame that contains the connection-specific header field":                     "a malformed request may be answered, which it is with 400",
	`Sends a HEADERS frame that contains the TE header field with any value other than "trailers"`: "the same",
}

// TestHTTP2IsAsTheSpecificationSays runs h2spec against the server, whichever way
// it sends.
func TestHTTP2IsAsTheSpecificationSays(t *testing.T) {
	h2spec := filepath.Join(t.TempDir(), "h2spec")
	build := exec.CommandContext(t.Context(), cmp.Or(os.Getenv("GO"), "go"), "build", "-trimpath", "-o", h2spec, "github.com/summerwind/h2spec/cmd/h2spec")
	build.Dir = "../../build/h2spec"
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build h2spec: %v\n%s", err, out)
	}
	failed, all := regexp.MustCompile(`× \d+: (.*)`), regexp.MustCompile(`(?m)^(\d+) tests, \d+ passed, 0 skipped`)
	for name, frameByFrame := range map[string]bool{"in bursts": false, "frame by frame": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, func(o *Options) { o.FrameByFrame = frameByFrame })
			_, port, err := net.SplitHostPort(f.serveTLS())
			if err != nil {
				t.Fatal(err)
			}
			// It fails for those that are otherwise. The path has an answer to any method.
			out, _ := exec.CommandContext(t.Context(), h2spec, "--tls", "--insecure", "--strict", "--port", port, "--path", "/version", "--timeout", "5").CombinedOutput()
			if n := all.FindSubmatch(out); n == nil || string(n[1]) != "146" {
				t.Errorf("h2spec did not run all of its tests:\n%s", out)
			}
			for _, test := range failed.FindAllSubmatch(out, -1) {
				if otherwise[string(test[1])] == "" {
					t.Errorf("failed: %s\n%s", test[1], out)
				}
			}
		})
	}
}
