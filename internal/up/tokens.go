package up

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/join"
)

// Access is how a command reaches a cluster as its administrator.
type Access struct {
	DataDir    string // of a server on this machine
	Kubeconfig string // another file than the server's own; empty: that one
}

// TokenOptions say what a token is good for.
type TokenOptions struct {
	Life        time.Duration // 0: for ever
	Uses        int           // how many machines may join by it; 0: any number
	Server      bool          // they may become servers
	Description string        // for people
}

// Check says what is wrong with the options, by the names of their flags.
func (o *TokenOptions) Check() error {
	switch {
	case o.Life < 0:
		return errors.New("--ttl must not be negative; 0 is for ever")
	case o.Life > 0 && o.Life < time.Second:
		return errors.New("--ttl must be a second at least; 0 is for ever")
	case o.Uses < 0:
		return errors.New("--uses must not be negative; 0 is any number")
	}
	return nil
}

// TokenState is what there is to know of a token. Its secret is not part of it.
type TokenState struct {
	ID          string     `json:"id"`
	For         string     `json:"for"` // agent or server
	Expires     *time.Time `json:"expires,omitempty"`
	Uses        int        `json:"uses,omitempty"`     // for how many machines it is good; 0: any number
	UsesLeft    *int       `json:"usesLeft,omitempty"` // nil: they are not counted
	Description string     `json:"description,omitempty"`
}

// NewToken is a token that was made, the only time that its secret is shown.
type NewToken struct {
	Token string `json:"token"`
	TokenState
	// Servers are where the API is.
	Servers []string `json:"servers"`
}

// CreateToken makes a token that machines join by.
func CreateToken(ctx context.Context, a Access, o TokenOptions) (NewToken, error) {
	ctx, cancel := context.WithTimeout(ctx, statusDeadline)
	defer cancel()
	api, pin, err := a.client()
	if err != nil {
		return NewToken{}, err
	}
	servers, err := published(ctx, api)
	if err != nil {
		return NewToken{}, err
	}
	text := join.NewToken(pin)
	t := authn.BootstrapToken{
		ID: text.ID, Secret: text.Secret, Description: o.Description, Authenticates: true, Signs: true, Servers: o.Server, Uses: o.Uses,
	}
	if o.Life > 0 {
		t.Ends = time.Now().Add(o.Life).Truncate(time.Second)
	}
	if _, err := api.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, t.NewSecret(), metav1.CreateOptions{}); err != nil {
		return NewToken{}, fmt.Errorf("create token: %w", err)
	}
	return NewToken{Token: text.String(), TokenState: stateOf(&t), Servers: servers}, nil
}

// Tokens are the tokens of a cluster that are good, in the order of their IDs.
func Tokens(ctx context.Context, a Access) ([]TokenState, error) {
	ctx, cancel := context.WithTimeout(ctx, statusDeadline)
	defer cancel()
	api, _, err := a.client()
	if err != nil {
		return nil, err
	}
	secrets, err := api.CoreV1().Secrets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeBootstrapToken)})
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	states := []TokenState{}
	for i := range secrets.Items {
		if t, ok := authn.ReadBootstrapToken(&secrets.Items[i]); ok && !t.Ended(time.Now()) {
			states = append(states, stateOf(&t))
		}
	}
	slices.SortFunc(states, func(a, b TokenState) int { return cmp.Compare(a.ID, b.ID) })
	return states, nil
}

// RevokeToken ends a token: no more machines join by it. Those that have stay.
func RevokeToken(ctx context.Context, a Access, id string) error {
	ctx, cancel := context.WithTimeout(ctx, statusDeadline)
	defer cancel()
	api, _, err := a.client()
	if err != nil {
		return err
	}
	err = api.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, authn.BootstrapSecret(id), metav1.DeleteOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no token %s: it has ended or was revoked before (kemudi token list)", id)
	case err != nil:
		return fmt.Errorf("revoke token %s: %w", id, err)
	}
	return nil
}

func stateOf(t *authn.BootstrapToken) TokenState {
	s := TokenState{ID: t.ID, For: "agent", Uses: t.Uses, Description: t.Description}
	if t.Servers {
		s.For = "server"
	}
	if !t.Ends.IsZero() {
		s.Expires = &t.Ends
	}
	if left, counted := t.Left(); counted {
		s.UsesLeft = &left
	}
	return s
}

// client is a client of the API, with the pin of the authority that its server is
// known by; empty where that is one that all the world trusts.
func (a Access) client() (api kubernetes.Interface, pin string, _ error) {
	file := cmp.Or(a.Kubeconfig, AdminKubeconfig(a.DataDir))
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, "", fmt.Errorf("read administrator's kubeconfig: %w; run this on a server, or name the file (--kubeconfig)", err)
	}
	ca := config.CAData
	if len(ca) == 0 && config.CAFile != "" {
		if ca, err = os.ReadFile(config.CAFile); err != nil {
			return nil, "", fmt.Errorf("read the authority that %s names: %w", file, err)
		}
	}
	if block, _ := pem.Decode(ca); block != nil {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, "", fmt.Errorf("read the authority in %s: %w", file, err)
		}
		pin = pki.Pin(cert)
	}
	if api, err = kubernetes.NewForConfig(config); err != nil {
		return nil, "", fmt.Errorf("make client: %w", err)
	}
	return api, pin, nil
}

// published are the servers that the cluster names to machines that join.
func published(ctx context.Context, api kubernetes.Interface) ([]string, error) {
	info, err := api.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, "cluster-info", metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read what the cluster says of itself: %w", err)
	}
	config, err := clientcmd.Load([]byte(info.Data["kubeconfig"]))
	if err != nil {
		return nil, fmt.Errorf("read cluster-info of namespace kube-public: %w", err)
	}
	var servers []string
	for _, c := range config.Clusters {
		servers = append(servers, c.Server)
	}
	slices.Sort(servers)
	return servers, nil
}
