package aggregate

import (
	"context"
	"encoding/json"
	"strings"
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
