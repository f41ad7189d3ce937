package apiserver

import (
	"encoding/base64"
	"encoding/json"
)

// position is where a list goes on: after the object with the key, in the state
// at the revision.
type position struct {
	rev int64
	key string
}

// anyRev in a token asks for the newest state.
const anyRev = -1

// token is the JSON within a continue token.
type token struct {
	APIVersion      string `json:"v"`
	ResourceVersion int64  `json:"rv"`
	StartKey        string `json:"start"`
}

const tokenVersion = "meta.k8s.io/v1"

func encodeToken(p position) string {
	b, err := json.Marshal(token{APIVersion: tokenVersion, ResourceVersion: p.rev, StartKey: p.key})
	if err != nil {
		panic(err) // a struct of strings and numbers has a JSON form
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeToken(s string) (position, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return position{}, badRequest("continue key is not valid: %v", err)
	}
	var t token
	if err := json.Unmarshal(b, &t); err != nil {
		return position{}, badRequest("continue key is not valid: %v", err)
	}
	switch {
	case t.APIVersion != tokenVersion:
		return position{}, badRequest("continue key is not valid: server does not recognize this encoded version %q", t.APIVersion)
	case t.StartKey == "":
		return position{}, badRequest("continue key is not valid: encoded start key empty (version meta.k8s.io/v1)")
	case t.ResourceVersion == 0 || t.ResourceVersion < anyRev:
		return position{}, badRequest("continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
	}
	return position{rev: t.ResourceVersion, key: t.StartKey}, nil
}
