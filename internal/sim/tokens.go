package sim

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
)

// tokenObjects are what tokens are bound to.
func (c *Cluster) tokenObjects() authn.Objects {
	return authn.Objects{
		ServiceAccount: getter(c.API(), core.ServiceAccounts), Secret: getter(c.API(), core.Secrets), Pod: getter(c.API(), core.Pods),
		Node: func(ctx context.Context, name string) *corev1.Node { return getter(c.API(), core.Nodes)(ctx, "", name) },
	}
}

func getter[T resource.Object](t client.Transport, r *resource.Resource[T]) func(ctx context.Context, namespace, name string) T {
	return func(_ context.Context, namespace, name string) T {
		obj, _ := client.Cached(t, r, "").Get(namespace, name)
		return obj
	}
}

// whoseToken prints the user of the token that a secret holds.
func whoseToken(ctx context.Context, r *run, args []string) error {
	o, rest, err := objectArg(args)
	if err != nil || len(rest) > 0 || o.def != core.Secrets.Def {
		return errors.Join(err, errArgs)
	}
	s, ok := client.Cached(r.c.API(), core.Secrets, "").Get(o.namespace, o.name)
	if !ok {
		return fmt.Errorf("there is no secret %q", o.name)
	}
	answer, ok, err := r.c.token.AuthenticateToken(ctx, string(s.Data[corev1.ServiceAccountTokenKey]))
	if err != nil || !ok {
		return errors.Join(err, errors.New("nobody knows the token"))
	}
	r.stdout = fmt.Sprintln(answer.User.GetName(), answer.User.GetGroups())
	return nil
}
