package authn

import (
	"context"
	"crypto/subtle"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// StaticTokens knows users by fixed tokens.
type StaticTokens map[string]user.Info

var _ authenticator.Token = StaticTokens(nil)

// AuthenticateToken says whose token it is.
func (s StaticTokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	for known, u := range s {
		if subtle.ConstantTimeCompare([]byte(known), []byte(token)) == 1 {
			auds, _ := authenticator.AudiencesFrom(ctx)
			return &authenticator.Response{Audiences: auds, User: u}, true, nil
		}
	}
	return nil, false, nil
}

// BootstrapTokens knows machines that join: their tokens are secrets in
// kube-system.
type BootstrapTokens struct {
	// Secret reads a secret of kube-system; nil if there is none.
	Secret func(name string) *corev1.Secret
}

var _ authenticator.Token = BootstrapTokens{}

var bootstrapToken = regexp.MustCompile(`^([a-z0-9]{6})\.([a-z0-9]{16})$`)

// Of bootstrap tokens and their secrets.
const (
	bootstrapType        = "bootstrap.kubernetes.io/token"
	bootstrapGroup       = "system:bootstrappers"
	bootstrapUserPrefix  = "system:bootstrap:"
	bootstrapSecretStart = "bootstrap-token-"
)

// AuthenticateToken says which bootstrap token it is.
func (b BootstrapTokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	parts := bootstrapToken.FindStringSubmatch(token)
	if parts == nil {
		return nil, false, nil
	}
	id, secret := parts[1], parts[2]
	s := b.Secret(bootstrapSecretStart + id)
	if s == nil || s.DeletionTimestamp != nil || s.Type != bootstrapType {
		return nil, false, nil
	}
	if subtle.ConstantTimeCompare(s.Data["token-secret"], []byte(secret)) != 1 || string(s.Data["token-id"]) != id {
		return nil, false, nil
	}
	if end := string(s.Data["expiration"]); end != "" {
		at, err := time.Parse(time.RFC3339, end)
		if err != nil || !time.Now().Before(at) {
			return nil, false, nil
		}
	}
	if string(s.Data["usage-bootstrap-authentication"]) != "true" {
		return nil, false, nil
	}
	groups, err := bootstrapGroups(string(s.Data["auth-extra-groups"]))
	if err != nil {
		return nil, false, fmt.Errorf("secret %s: %w", s.Name, err)
	}
	auds, _ := authenticator.AudiencesFrom(ctx)
	return &authenticator.Response{Audiences: auds, User: &user.DefaultInfo{Name: bootstrapUserPrefix + id, Groups: groups}}, true, nil
}

var bootstrapExtraGroup = regexp.MustCompile(`^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$`)

func bootstrapGroups(extra string) ([]string, error) {
	groups := []string{bootstrapGroup}
	for g := range strings.SplitSeq(extra, ",") {
		g = strings.TrimSpace(g)
		switch {
		case g == "" || slices.Contains(groups, g):
		case !bootstrapExtraGroup.MatchString(g):
			return nil, fmt.Errorf("bootstrap group %q is invalid", g)
		default:
			groups = append(groups, g)
		}
	}
	return groups, nil
}
