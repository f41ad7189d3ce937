package aggregate

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/kemudi/kemudi/internal/apiserver/openapi"
)

// document finds where another server has the OpenAPI document, version 3, of its group-version, as
// its index says; empty: it has none.
func (a *Aggregator) document(ctx context.Context, r *remote) string {
	body, err := a.send(ctx, r, request{path: "/openapi/v3"})
	if err != nil {
		return "" // many have none
	}
	var index struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if json.Unmarshal(body, &index) != nil {
		return ""
	}
	at := index.Paths[strings.TrimPrefix(r.root(), "/")].URL
	if path, _, _ := strings.Cut(at, "?"); path != "/openapi/v3"+r.root() { // G4
		return ""
	}
	return at
}

// swagger is which document of OpenAPI, version 2, another server has answered with last.
type swagger struct {
	tag string
	sum [sha256.Size]byte
}

// learn takes in another server's document of OpenAPI, version 2, if it is not the one that is known. While it cannot be had, what
// is known of it counts.
func (a *Aggregator) learn(ctx context.Context, r *remote, known *swagger) {
	got, err := a.exchange(ctx, r, request{path: "/openapi/v2", unless: known.tag})
	var part []byte
	switch sum := sha256.Sum256(got.body); {
	case got.code == http.StatusNotFound:
		*known = swagger{}
	case err != nil, got.code == http.StatusNotModified, sum == known.sum:
		return
	default:
		*known = swagger{got.tag, sum}
		if part, err = openapi.PartOf(got.body, r.gv); err != nil {
			a.log.Warn("the OpenAPI document of an aggregated API cannot be read", "apiservice", r.name, "err", err) // G4
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.remotes[r.name] == r {
		r.state.swagger = part
		a.publishLocked()
	}
}
