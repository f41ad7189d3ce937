package cluster

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/store/etcd"
)

// standingPath is where a server whose part of the store leads is asked how far the log is, by
// the ID of who asks.
const standingPath = "/kemudi.io/v1/store/standing"

// maxStanding bounds the answer, in bytes.
const maxStanding = 4096

// standing answers other servers, by GET.
func (m *seats) standing(ctx context.Context, q apiserver.PlainRequest) (any, error) {
	if !slices.Contains(q.User.GetGroups(), user.SystemPrivilegedGroup) {
		return nil, refusal.BadRequest("only servers ask each other how far the store is")
	}
	asker, err := strconv.ParseUint(q.Query.Get("asker"), 16, 64)
	if err != nil {
		return nil, refusal.BadRequest("asker: want the ID of a member of the store, in hexadecimal")
	}
	return m.store.Standing(ctx, asker)
}

// standings asks other servers. The zero value is of a server that has none.
type standings struct {
	s  *server
	mu struct {
		sync.Mutex
		client *http.Client // nil: it is to be made of the certificates that there are now
	}
}

// ask asks the server that has one of the leader's hosts.
func (a *standings) ask(ctx context.Context, of etcd.Leader) (etcd.Standing, error) {
	for _, server := range (nodes{a.s}).others() {
		at, err := url.Parse(server)
		if err != nil || !slices.Contains(of.Hosts, at.Hostname()) {
			continue
		}
		at.Path, at.RawQuery = standingPath, url.Values{"asker": {strconv.FormatUint(of.Asker, 16)}}.Encode()
		said, err := a.get(ctx, at.String())
		if err != nil {
			a.forget()
			return said, err
		}
		if said.Confirms { // else it may be another server of that machine
			return said, nil
		}
	}
	return etcd.Standing{}, fmt.Errorf("no server at %v leads the store", of.Hosts)
}

func (a *standings) get(ctx context.Context, from string) (said etcd.Standing, _ error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return said, fmt.Errorf("ask the leader of the store: %w", err)
	}
	resp, err := a.client().Do(req)
	if err != nil {
		return said, fmt.Errorf("ask the leader of the store: %w", err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxStanding))
	if err != nil {
		return said, fmt.Errorf("ask the leader of the store: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return said, fmt.Errorf("ask the leader of the store: %s", resp.Status)
	}
	if err := json.Unmarshal(data, &said); err != nil {
		return said, fmt.Errorf("ask the leader of the store: %w", err)
	}
	return said, nil
}

// client keeps one connection to each server that was asked.
func (a *standings) client() *http.Client {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.client == nil {
		a.mu.client = &http.Client{Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: a.s.pki.CA.Pool(), GetClientCertificate: a.s.pki.KubeletClientCertificate},
			ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute,
		}}
	}
	return a.mu.client
}

// forget closes the connections: the next question is asked by new ones.
func (a *standings) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.client != nil {
		a.mu.client.CloseIdleConnections()
		a.mu.client = nil
	}
}
