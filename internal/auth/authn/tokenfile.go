package authn

import (
	"context"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// TokenFile knows users by the tokens of a file, which are good for as long as they are in it.
type TokenFile struct {
	users map[[sha256.Size]byte]*user.DefaultInfo // by digests: how long a look-up takes says nothing of a token
}

var _ authenticator.Token = (*TokenFile)(nil)

// ReadTokenFile reads a file of lines token,user,uid,"group1,group2", in which the groups may be missing.
func ReadTokenFile(path string, log *slog.Logger) (*TokenFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readTokens(f, path, log)
}

func readTokens(r io.Reader, path string, log *slog.Logger) (*TokenFile, error) {
	t := &TokenFile{users: map[[sha256.Size]byte]*user.DefaultInfo{}}
	lines := csv.NewReader(r)
	lines.FieldsPerRecord = -1
	for n := 1; ; n++ {
		fields, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			return nil, fmt.Errorf("token file '%s': %w", path, err)
		}
		if len(fields) < 3 {
			return nil, fmt.Errorf("token file '%s' must have at least 3 columns (token, user name, user uid), found %d", path, len(fields))
		}
		if fields[0] == "" {
			log.Warn("empty token has been found in token file", "file", path, "record", n)
			continue
		}
		digest := sha256.Sum256([]byte(fields[0]))
		if t.users[digest] != nil {
			log.Warn("duplicate token has been found in token file", "file", path, "record", n)
		}
		u := &user.DefaultInfo{Name: fields[1], UID: fields[2]}
		if len(fields) > 3 {
			u.Groups = strings.Split(fields[3], ",")
		}
		t.users[digest] = u
	}
}

// AuthenticateToken says whose token it is.
func (t *TokenFile) AuthenticateToken(_ context.Context, token string) (*authenticator.Response, bool, error) {
	if u := t.users[sha256.Sum256([]byte(token))]; u != nil {
		return &authenticator.Response{User: u}, true, nil
	}
	return nil, false, nil
}
