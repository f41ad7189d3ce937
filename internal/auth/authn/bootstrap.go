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

// BootstrapToken is what a machine joins with.
type BootstrapToken struct {
	ID, Secret string
	Ends       time.Time // zero: never
	// Authenticates says that it is for asking the API, Signs that it is for
	// knowing that cluster-info is genuine.
	Authenticates, Signs bool
	groups               string
}

// ReadBootstrapToken reads the token in a secret of kube-system; ok is false if
// it holds none. An end that cannot be read is long past.
func ReadBootstrapToken(s *corev1.Secret) (t BootstrapToken, ok bool) {
	t = BootstrapToken{
		ID: string(s.Data["token-id"]), Secret: string(s.Data["token-secret"]), groups: string(s.Data["auth-extra-groups"]),
		Authenticates: string(s.Data["usage-bootstrap-authentication"]) == "true",
		Signs:         string(s.Data["usage-bootstrap-signing"]) == "true",
	}
	if s.Type != bootstrapType || s.Name != bootstrapSecretStart+t.ID || !bootstrapToken.MatchString(t.ID+"."+t.Secret) {
		return t, false
	}
	if end := string(s.Data["expiration"]); end != "" {
		var err error
		if t.Ends, err = time.Parse(time.RFC3339, end); err != nil {
			t.Ends = time.Unix(0, 0)
		}
	}
	return t, true
}

// Ended says whether the token is good no more.
func (t *BootstrapToken) Ended(now time.Time) bool { return !t.Ends.IsZero() && !now.Before(t.Ends) }

// AuthenticateToken says which bootstrap token it is.
func (b BootstrapTokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	parts := bootstrapToken.FindStringSubmatch(token)
	if parts == nil {
		return nil, false, nil
	}
	id, secret := parts[1], parts[2]
	s := b.Secret(bootstrapSecretStart + id)
	if s == nil || s.DeletionTimestamp != nil {
		return nil, false, nil
	}
	t, ok := ReadBootstrapToken(s)
	if !ok || subtle.ConstantTimeCompare([]byte(t.Secret), []byte(secret)) != 1 || !t.Authenticates || t.Ended(time.Now()) {
		return nil, false, nil
	}
	groups, err := bootstrapGroups(t.groups)
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
