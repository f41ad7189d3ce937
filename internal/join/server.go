package join

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/store/etcd"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/version"
)

// ServersPath is where a machine asks to become a server of the cluster (POST), and an
// administrator which there are (GET); one is removed below it, by its name (DELETE).
const ServersPath = "/kemudi.io/v1/servers"

// ServerRequest is what a machine says that is to become a server. Asking again is harmless: the same
// key gets the same place.
type ServerRequest struct {
	Name    string `json:"name"`
	Version string `json:"version"` // as [version.Git] has it
	Key     string `json:"key"`     // pin of the key by which other servers are to know it
	// URL is where other servers reach its part of the store; empty: it keeps none.
	URL string `json:"url,omitempty"`
	// Settings are those of the cluster that it was told, as the cluster publishes its own.
	Settings string `json:"settings,omitempty"`
	// Signer is the pin of the key by which it was told to sign tokens of service accounts.
	Signer string `json:"signer,omitempty"`
}

// ServerAnswer is what makes a machine a server. Who has it is the cluster.
type ServerAnswer struct {
	Keys     map[string][]byte `json:"keys"`     // by the names of their files
	Settings string            `json:"settings"` // as the cluster publishes them
	// Cluster is the store's, with the new member; nil: it is kept elsewhere.
	Cluster *etcd.Cluster `json:"cluster,omitempty"`
	// Server is the URL of who gave it.
	Server string `json:"-"`
}

// ServerState is one of the servers that keep the store.
type ServerState struct {
	Name   string `json:"name"`
	Member string `json:"member"` // ID in the store, in hexadecimal
	URL    string `json:"url"`    // of its part of the store
	// Role is leader, voter, or learner: that has not caught up yet, and counts for no majority.
	Role string `json:"role"`
	// Started says that it has been heard of since it was added.
	Started bool `json:"started"`
}

// Bounds of a request to become a server.
const (
	serverTimeout = 90 * time.Second // longer than the server takes for any request
	maxAnswer     = 1 << 20
)

// Server is how a machine asks to become one.
type Server struct {
	Servers []string // of the cluster, as people name them
	Token   Token
	Log     *slog.Logger
}

// Ask asks the servers to make this machine one of them, by the token. It tries again what may come
// right by itself until ctx ends; a [Refusal] does not.
func (s Server) Ask(ctx context.Context, r ServerRequest) (*ServerAnswer, error) {
	backoff := task.Backoff{Initial: firstTry, Max: longestTry, Jitter: 0.2}
	for {
		answer, err := s.ask(ctx, r)
		var final *Refusal
		if err == nil || errors.As(err, &final) || ctx.Err() != nil {
			return answer, err
		}
		wait := backoff.Next()
		s.Log.Warn("could not become a server of the cluster yet", "node", r.Name, "err", err, "again", wait.Round(time.Millisecond))
		if err := task.Sleep(ctx, wait); err != nil {
			return nil, fmt.Errorf("join: %w", err)
		}
	}
}

func (s Server) ask(ctx context.Context, r ServerRequest) (*ServerAnswer, error) {
	found, err := discoverAny(ctx, s.Servers, s.Token)
	if err != nil {
		return nil, err
	}
	certs, err := parseCertificates(found.CA)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: pool(certs), MinVersion: tls.VersionTLS12}
	var errs []error
	for _, base := range found.Servers {
		answer, err := s.post(ctx, base, config, r)
		var final *Refusal
		if err == nil || errors.As(err, &final) {
			return answer, err
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// post asks one server.
func (s Server) post(ctx context.Context, base string, config *tls.Config, r ServerRequest) (*ServerAnswer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, serverTimeout, errors.New("it did not answer in time"))
	defer cancel()
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+ServersPath, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", base, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+s.Token.Bearer())
	req.Header.Set("User-Agent", version.UserAgent("kemudi-join"))
	res, text, err := exchange(req, config)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", base, err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, s.refused(base, res, text)
	}
	answer := &ServerAnswer{}
	err = json.Unmarshal(text, answer)
	if err == nil && (len(answer.Keys) == 0 || answer.Settings == "") {
		err = errors.New("there are no keys or no settings in it")
	}
	answer.Server = base
	if err != nil {
		return nil, refuse("what %s answered makes no server of this machine; is it of another version of this program? %w", base, err)
	}
	return answer, nil
}

// exchange sends a request by a connection of its own, and reads the answer.
func exchange(req *http.Request, config *tls.Config) (res *http.Response, text []byte, err error) {
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	if res, err = transport.RoundTrip(req); err == nil {
		text, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer))
		_ = res.Body.Close() // it was read
	}
	if err != nil && req.Context().Err() != nil {
		err = context.Cause(req.Context())
	}
	return res, text, err
}

// ListServers asks a server which there are, as whom the certificate in config is for.
func ListServers(ctx context.Context, base string, config *tls.Config) (states []ServerState, _ error) {
	ctx, cancel := context.WithTimeoutCause(ctx, discoverTimeout, errors.New("it did not answer in time"))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+ServersPath, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", base, err)
	}
	res, text, err := exchange(req, config)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", base, err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask %s: it answered %s", base, res.Status)
	}
	if err := json.Unmarshal(text, &states); err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", base, err)
	}
	return states, nil
}

// refused says what an answer means that makes no server.
func (s Server) refused(base string, res *http.Response, text []byte) error {
	var status metav1.Status
	message := res.Status
	if json.Unmarshal(text, &status) == nil && status.Message != "" {
		message = status.Message
	}
	switch res.StatusCode {
	case http.StatusUnauthorized:
		return refuse("the cluster at %s does not take token %s: it has ended or was revoked, or it is mistyped. Make another on a server: kemudi token create --for server", base, s.Token.ID)
	case http.StatusForbidden:
		return refuse("the cluster at %s does not let machines become servers by token %s, which is for agents: join as one (kemudi agent), or make another on a server: kemudi token create --for server", base, s.Token.ID)
	case http.StatusNotFound:
		return refuse("the server at %s takes no further servers: it is of an older version of this program. Bring it up to date first", base)
	case http.StatusBadRequest, http.StatusConflict:
		return refuse("%s", message)
	}
	return fmt.Errorf("the server at %s says: %s", base, message)
}
