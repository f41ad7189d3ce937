package apiserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/kemudi/kemudi/test/wait"
)

// TestHeartbeatsOfNodesAreToldInTheirOrder: those that nobody waits for come with what
// somebody does, and by themselves as well.
func TestHeartbeatsOfNodesAreToldInTheirOrder(t *testing.T) {
	t.Parallel() // it waits for a while
	over(t, func(t *testing.T, transport func(t *testing.T) *http.Transport) {
		f := newFixture(t)
		base := "https://" + f.serveTLS()
		ctx, cancel := context.WithTimeoutCause(t.Context(), wait.Patience, errors.New("the test's time is over"))
		defer cancel()
		f.must(201, "POST", "/api/v1/nodes", `{"metadata":{"name":"n"},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/v1/nodes?watch=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := transport(t).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		in := bufio.NewReader(res.Body)
		next := func(want string) {
			t.Helper()
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			e := decoded[struct {
				Type   string
				Object struct {
					Metadata struct{ Labels map[string]string }
					Status   struct {
						Conditions []struct{ LastHeartbeatTime string }
					}
				}
			}](t, line)
			got := e.Type + " " + e.Object.Metadata.Labels["a"]
			for _, c := range e.Object.Status.Conditions {
				got += c.LastHeartbeatTime
			}
			if got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
		next("ADDED ")
		beat := func(second int) string {
			at := fmt.Sprintf("2026-01-01T00:00:%02dZ", second)
			f.must(200, "PATCH", "/api/v1/nodes/n/status", `{"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":"`+at+`"}]}}`, "Content-Type: application/strategic-merge-patch+json")
			return at
		}
		first, second := beat(1), beat(2)
		f.must(200, "PATCH", "/api/v1/nodes/n", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type: application/merge-patch+json")
		next("MODIFIED " + first)
		next("MODIFIED " + second)
		next("MODIFIED b" + second)
		next("MODIFIED b" + beat(3))
	})
}
