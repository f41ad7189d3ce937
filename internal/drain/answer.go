package drain

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/client"
)

// Answer is what a server says to a node, and a node to a server.
type Answer struct {
	// Silent are the nodes of which it is not known whether they have applied the revision.
	Silent []string `json:"silent,omitempty"`
	// Applied is the revision up to which the node's own rules are true.
	Applied int64 `json:"applied,omitempty"`
}

// ask asks a server.
func ask(ctx context.Context, t client.Transport, path string) (a Answer, _ error) {
	obj, err := t.Do(ctx, &client.Request{Verb: "get", Path: path})
	if err != nil {
		return a, err
	}
	said, ok := obj.(*runtime.Unknown)
	if !ok {
		return a, fmt.Errorf("ask for what nodes have applied: the answer is a %T", obj)
	}
	if err := json.Unmarshal(said.Raw, &a); err != nil {
		return a, fmt.Errorf("ask for what nodes have applied: %w", err)
	}
	return a, nil
}

// Handler answers servers on a node: when its own rules are true up to the revision that is asked
// for, or when the time is over that the question allows. It is served at [Pattern].
func Handler(own Rules) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rev, timeout, ok := parse(r.PathValue("name"), r.URL.Query())
		if !ok {
			http.Error(w, "a revision and a timeout are asked for", http.StatusBadRequest)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		_ = own.Wait(ctx, rev) // what there is then is said
		data, err := json.Marshal(Answer{Applied: own.Rev()})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(data) // an error means that the server has gone
	}
}
