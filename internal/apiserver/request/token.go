package request

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
)

// Position is where a list goes on: after the object with the key, in the state
// at the revision.
type Position struct {
	Rev int64
	Key string
}

// AnyRev in a position asks for the newest state.
const AnyRev = -1

// token is the JSON within a continue token.
type token struct {
	APIVersion      string `json:"v"`
	ResourceVersion int64  `json:"rv"`
	StartKey        string `json:"start"`
}

const tokenVersion = "meta.k8s.io/v1"

// EncodeToken writes a position as a continue token.
func EncodeToken(p Position) string {
	b, err := json.Marshal(token{APIVersion: tokenVersion, ResourceVersion: p.Rev, StartKey: p.Key})
	if err != nil {
		panic(err) // a struct of strings and numbers has a JSON form
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// DecodeToken reads a continue token. The error is for the client.
func DecodeToken(s string) (Position, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return Position{}, fmt.Errorf("continue key is not valid: %w", err)
	}
	var t token
	if err := json.Unmarshal(b, &t); err != nil {
		return Position{}, fmt.Errorf("continue key is not valid: %w", err)
	}
	switch {
	case t.APIVersion != tokenVersion:
		return Position{}, fmt.Errorf("continue key is not valid: server does not recognize this encoded version %v", t.APIVersion)
	case t.ResourceVersion == 0:
		return Position{}, errors.New("continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
	case t.StartKey == "":
		return Position{}, errors.New("continue key is not valid: encoded start key empty (version meta.k8s.io/v1)")
	}
	// A key that leaves its resource, or goes there by detours, is none of ours.
	if rooted := "/" + strings.TrimPrefix(t.StartKey, "/"); path.Clean(rooted) != rooted {
		return Position{}, fmt.Errorf("continue key is not valid: %s", t.StartKey)
	}
	return Position{Rev: max(t.ResourceVersion, AnyRev), Key: strings.TrimPrefix(t.StartKey, "/")}, nil
}
