package metricsserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Dialer reaches node agents.
type Dialer interface {
	// DialNode opens a connection to the agent of a node on which it speaks HTTP.
	DialNode(ctx context.Context, node string) (net.Conn, error)
}

// Agents asks node agents what their pods use.
type Agents struct {
	http *http.Transport
}

// How long a connection is kept for the next look, and how much a node may say.
const (
	kept      = 30 * time.Second
	maxAnswer = 16 << 20
)

// NewAgents asks over d; nil reaches nobody. Close closes what it keeps.
func NewAgents(d Dialer) *Agents {
	return &Agents{http: &http.Transport{
		IdleConnTimeout: kept, MaxIdleConnsPerHost: 1,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			if d == nil {
				return nil, errors.New("this server has no connection to node agents")
			}
			node, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return d.DialNode(ctx, node)
		},
	}}
}

// Close closes the connections that wait for the next look.
func (a *Agents) Close() { a.http.CloseIdleConnections() }

// Ask looks at a node.
func (a *Agents) Ask(ctx context.Context, node string) (*Sample, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+node+"/metrics/resource", nil)
	if err != nil {
		return nil, fmt.Errorf("ask node %s what it uses: %w", node, err)
	}
	resp, err := a.http.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("ask node %s what it uses: %w", node, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask node %s what it uses: %s", node, resp.Status)
	}
	s, err := parse(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("ask node %s what it uses: %w", node, err)
	}
	return s, nil
}
