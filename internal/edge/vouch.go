package edge

import (
	"net/http"
	"strconv"
	"strings"
)

// challenges are where ACME servers ask whether a host is its owner's (RFC 8555, 8.3).
const challenges = "/.well-known/acme-challenge/"

// vouches answers an ACME server that asks, if there is an account for the host. The answer is the token that it asks
// for and the account's thumbprint: no other account's owner can do anything with it.
func (e *Edge) vouches(a *answer, path, account string) bool {
	token, ok := strings.CutPrefix(path, challenges)
	if !ok || account == "" || token == "" || strings.Trim(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		return false
	}
	text := token + "." + account
	h := a.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	a.WriteHeader(http.StatusOK)
	_, _ = a.Write([]byte(text))
	return true
}
