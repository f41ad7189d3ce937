package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
)

// load sends requests to a URL without a break.
type load struct {
	stop func()
	wg   sync.WaitGroup
	mu   struct {
		sync.Mutex
		answers map[string]int // by version
		errs    []string
	}
}

// startLoad sends a request every few milliseconds, half of them over new
// connections, until the load is ended.
func startLoad(t *testing.T, h *nettest.Host, url string) *load {
	t.Helper()
	kept := httpClient(h)
	kept.Transport.(*http.Transport).DisableKeepAlives = false
	return startLoadOf(t, url, httpClient(h), kept)
}

// startLoadOf has each of the clients send a request every few milliseconds, until the
// load is ended.
func startLoadOf(t *testing.T, url string, clients ...*http.Client) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{stop: cancel}
	l.mu.answers = map[string]int{}
	for _, client := range clients {
		l.wg.Go(func() {
			tick := time.NewTicker(4 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					l.ask(client, url)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	t.Cleanup(func() {
		l.stop()
		l.wg.Wait()
		for _, client := range clients {
			client.CloseIdleConnections()
		}
	})
	return l
}

func (l *load) ask(client *http.Client, url string) {
	version, err := version(client, url)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.mu.errs = append(l.mu.errs, time.Now().UTC().Format("15:04:05.000 ")+err.Error())
		return
	}
	l.mu.answers[version]++
}

// version asks a web server for its version, the last word of its answer.
func version(client *http.Client, url string) (string, error) {
	resp, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	words := strings.Fields(string(body))
	if resp.StatusCode != http.StatusOK || len(words) != 3 {
		return "", fmt.Errorf("%s: %q", resp.Status, body)
	}
	return words[2], nil
}

// end ends the load. Every request must have been answered, and each of the
// versions must have been seen.
func (l *load) end(t *testing.T, versions ...string) {
	t.Helper()
	l.stop()
	l.wg.Wait()
	n := len(l.mu.errs)
	for v, count := range l.mu.answers {
		n += count
		t.Logf("%d answers of version %s", count, v)
	}
	if len(l.mu.errs) > 0 {
		t.Errorf("%d of %d requests failed:\n%s", len(l.mu.errs), n, strings.Join(l.mu.errs[:min(10, len(l.mu.errs))], "\n"))
	}
	for _, v := range versions {
		if l.mu.answers[v] == 0 {
			t.Errorf("version %s never answered", v)
		}
	}
}
