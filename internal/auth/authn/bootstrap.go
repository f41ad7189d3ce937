package authn

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Groups of the tokens that kemudi makes: what the machine that joins by one may become.
const (
	AgentsGroup  = "system:bootstrappers:kemudi:agents"
	ServersGroup = "system:bootstrappers:kemudi:servers" // a server is an agent too
)

// Keys of ours in the secrets: for how many machines a token is good, and the pins
// of the keys of those that it has let in, a line each.
const (
	bootstrapUses = "kemudi-uses"
	bootstrapUsed = "kemudi-used"
)

// BootstrapToken is what a machine joins with.
type BootstrapToken struct {
	ID, Secret  string
	Description string
	Ends        time.Time // zero: never
	// Authenticates says that it is for asking the API, Signs that it is for
	// knowing that cluster-info is genuine.
	Authenticates, Signs bool
	// Servers says that a machine may become a server with it.
	Servers bool
	// Uses is how many machines it is good for; 0: any number. Used are the pins of
	// the keys of those that have joined, if they are counted.
	Uses int
	Used []string

	groups string
}

// BootstrapSecret is the name of the secret that holds the token of that ID.
func BootstrapSecret(id string) string { return bootstrapSecretStart + id }

// BootstrapTokenOf is the ID of the token that the user has shown; ok is false for
// users who have shown something else.
func BootstrapTokenOf(name string, groups []string) (id string, ok bool) {
	id, ok = strings.CutPrefix(name, bootstrapUserPrefix)
	return id, ok && slices.Contains(groups, bootstrapGroup)
}

// ReadBootstrapToken reads the token in a secret of kube-system; ok is false if
// it holds none. One whose end or number of uses cannot be read has ended long ago.
func ReadBootstrapToken(s *corev1.Secret) (t BootstrapToken, ok bool) {
	t = BootstrapToken{
		ID: string(s.Data["token-id"]), Secret: string(s.Data["token-secret"]), groups: string(s.Data["auth-extra-groups"]),
		Description:   string(s.Data["description"]),
		Authenticates: string(s.Data["usage-bootstrap-authentication"]) == "true",
		Signs:         string(s.Data["usage-bootstrap-signing"]) == "true",
		Used:          strings.Fields(string(s.Data[bootstrapUsed])),
	}
	if s.Type != bootstrapType || s.Name != BootstrapSecret(t.ID) || !bootstrapToken.MatchString(t.ID+"."+t.Secret) {
		return t, false
	}
	if groups, err := bootstrapGroups(t.groups); err == nil {
		t.Servers = slices.Contains(groups, ServersGroup)
	}
	if end := string(s.Data["expiration"]); end != "" {
		var err error
		if t.Ends, err = time.Parse(time.RFC3339, end); err != nil {
			t.Ends = time.Unix(0, 0)
		}
	}
	if uses := string(s.Data[bootstrapUses]); uses != "" {
		var err error
		if t.Uses, err = strconv.Atoi(uses); err != nil || t.Uses < 1 {
			t.Ends = time.Unix(0, 0)
		}
	}
	return t, true
}

// NewSecret is the secret that holds a token that is new.
func (t *BootstrapToken) NewSecret() *corev1.Secret {
	groups := AgentsGroup
	if t.Servers {
		groups = ServersGroup
	}
	data := map[string]string{
		"token-id": t.ID, "token-secret": t.Secret, "auth-extra-groups": groups,
		"usage-bootstrap-authentication": strconv.FormatBool(t.Authenticates), "usage-bootstrap-signing": strconv.FormatBool(t.Signs),
	}
	if t.Description != "" {
		data["description"] = t.Description
	}
	if !t.Ends.IsZero() {
		data["expiration"] = t.Ends.UTC().Format(time.RFC3339)
	}
	if t.Uses > 0 {
		data[bootstrapUses] = strconv.Itoa(t.Uses)
	}
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: BootstrapSecret(t.ID)},
		Type:       bootstrapType, Data: map[string][]byte{},
	}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	return s
}

// Left is how many more machines may join; ok is false if they are not counted.
func (t *BootstrapToken) Left() (n int, ok bool) { return max(0, t.Uses-len(t.Used)), t.Uses > 0 }

// UseBootstrapToken counts that the machine with the key of that pin joins by the
// token in s, once however often it asks. It returns the secret to store instead of
// s, as an update of the revision that s is of: so of many that join at a time no
// more get in than may. nil: there is nothing to store. It fails with [ErrUsedUp]
// if the machine must not join.
func UseBootstrapToken(s *corev1.Secret, pin string) (*corev1.Secret, error) {
	t, ok := ReadBootstrapToken(s)
	left, counted := t.Left()
	switch {
	case !ok || !counted || slices.Contains(t.Used, pin):
		return nil, nil
	case left == 0:
		return nil, fmt.Errorf("token %s was good for %d and is %w; make another on a server: kemudi token create", t.ID, t.Uses, ErrUsedUp)
	}
	s = s.DeepCopy()
	s.Data[bootstrapUsed] = []byte(strings.Join(append(t.Used, pin), "\n"))
	return s, nil
}

// ErrUsedUp says that as many machines have joined by a token as may.
var ErrUsedUp = errors.New("used up")

// Ended says whether the token is good no more.
func (t *BootstrapToken) Ended(now time.Time) bool { return !t.Ends.IsZero() && !now.Before(t.Ends) }

// AuthenticateToken says which bootstrap token it is.
func (b BootstrapTokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	parts := bootstrapToken.FindStringSubmatch(token)
	if parts == nil {
		return nil, false, nil
	}
	id, secret := parts[1], parts[2]
	s := b.Secret(BootstrapSecret(id))
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
