package join

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/internal/task"
)

// Waits of a machine that joins.
const (
	firstTry     = 200 * time.Millisecond
	longestTry   = 15 * time.Second
	verifyWithin = 5 * time.Second // a machine that is in a cluster starts without its servers, too
)

// Join makes the machine part of the cluster of the servers, by the token. One that is
// part of it already needs no token and no server, unless its disk may be a copy of
// another's; one whose Node was deleted joins anew. Join tries again what may come
// right by itself until ctx ends; a [Refusal] does not.
func (i *Identity) Join(ctx context.Context, servers []string, t Token) error {
	backoff := task.Backoff{Initial: firstTry, Max: longestTry, Jitter: 0.2}
	for {
		err := i.join(ctx, servers, t)
		var final *Refusal
		if err == nil || errors.As(err, &final) || ctx.Err() != nil {
			return err
		}
		wait := backoff.Next()
		i.o.Log.Warn("could not join the cluster yet", "node", i.o.NodeName, "err", err, "again", wait.Round(time.Millisecond))
		if err := task.Sleep(ctx, wait); err != nil {
			return fmt.Errorf("join: %w", err)
		}
	}
}

func (i *Identity) join(ctx context.Context, servers []string, t Token) error {
	if i.Joined() {
		again, err := i.verify(ctx, servers, t)
		if err != nil || !again {
			return err
		}
	}
	if old := i.client.get(); t.ID == "" && old != nil && ended(old.Leaf) {
		return refuse("the certificate of this machine ended at %s, by its clock: it was off, or without its servers, for too long. To have it join again, start it with a new token (kemudi token create, on a server)", old.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if t.ID == "" {
		return refuse("this machine is in no cluster yet: make a token on a server of it (kemudi token create) and start with --server and --token")
	}
	if len(servers) == 0 {
		return refuse("this machine is in no cluster yet: name a server of it (--server)")
	}
	found, err := discoverAny(ctx, servers, t)
	if err != nil {
		return err
	}
	if err := i.fits(ctx, *found); err != nil {
		return err
	}
	// From here on each step leaves what the next start goes on from: the record, the key, and
	// what was signed for the key.
	if err := i.remember(record{Node: i.o.NodeName, Machine: i.o.Machine, Servers: found.Servers, CA: string(found.CA)}); err != nil {
		return err
	}
	key, err := i.client.key()
	if err != nil {
		return err
	}
	signed, err := i.signedByToken(ctx, found, t, clientWish(i.o.NodeName, key))
	if err != nil {
		return err
	}
	certs, err := parseCertificates(signed)
	if err == nil && len(certs) > 0 && time.Now().Before(certs[0].NotBefore) {
		return refuse("the clock of this machine says %s, but its certificate, which was signed just now, is good from %s on. Set the clock and try again",
			time.Now().UTC().Format(time.RFC3339), certs[0].NotBefore.UTC().Format(time.RFC3339))
	}
	if err := i.client.keep(signed, key); err != nil {
		return err
	}
	i.o.Log.Info("joined the cluster", "node", i.o.NodeName, "server", found.Servers[0])
	return nil
}

// discoverAny asks the servers in turn until one proves to be of the token's cluster.
func discoverAny(ctx context.Context, servers []string, t Token) (*Cluster, error) {
	var errs []error
	for _, server := range servers {
		found, err := Discover(ctx, server, t)
		if err == nil {
			return found, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// signedByToken gets a certificate by the token.
func (i *Identity) signedByToken(ctx context.Context, found *Cluster, t Token, w *wish) (signed []byte, err error) {
	transport, err := https.New(https.Options{
		Servers: found.Servers, CA: found.CA, Agent: "kemudi-join", Logger: i.o.Log, Token: func() (string, error) { return t.Bearer(), nil },
	})
	if err != nil {
		return nil, err
	}
	err = using(ctx, transport, func(ctx context.Context) error {
		signed, err = ask(ctx, transport, w, func(name string) {
			i.o.Log.Info("asked the cluster for a certificate", "node", i.o.NodeName, "request", name)
		})
		return err
	})
	switch {
	case apierrors.IsUnauthorized(err):
		return nil, refuse("the cluster at %s does not take token %s: it has ended or was revoked, or it is mistyped. Make another on a server: kemudi token create", found.Servers[0], t.ID)
	case apierrors.IsForbidden(err):
		return nil, refuse("the cluster at %s does not let token %s ask for certificates of nodes: make one that may on a server: kemudi token create: %w", found.Servers[0], t.ID, err)
	}
	return signed, err
}

// using feeds the caches of a transport while f runs.
func using(ctx context.Context, t *https.Transport, f func(context.Context) error) error {
	g := task.NewGroup(ctx)
	g.Go("transport", t.Run)
	err := f(g.Context())
	g.Cancel(context.Canceled)
	return errors.Join(err, g.Wait())
}

// verify looks whether a machine that is in a cluster still is, and is the one that
// it seems. again says that it has to join once more, by the token.
func (i *Identity) verify(ctx context.Context, servers []string, t Token) (again bool, _ error) {
	r := i.record()
	if t.Pin != "" && !r.of(t.Pin) {
		return false, refuse("this machine is the node %s of another cluster than that of token %s: run 'kemudi reset' here to leave that one, or start without --token to stay", r.Node, t.ID)
	}
	copied := r.Machine != i.o.Machine
	var all []string // as they were named first
	for _, server := range servers {
		url, err := serverURL(server)
		if err != nil {
			return false, err
		}
		all = append(all, url)
	}
	for _, s := range r.Servers {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	began := time.Now()
	node, err := i.self(ctx, all)
	switch {
	case apierrors.IsUnauthorized(err) && t.ID == "":
		return false, refuse("the cluster does not know this machine any more: its Node %s was deleted, or another machine has the name now. To have it join again, start it with a new token (kemudi token create, on a server); to have it leave, run 'kemudi reset' here", r.Node)
	case apierrors.IsUnauthorized(err):
		i.o.Log.Info("the cluster does not know this machine any more; it joins again by the token", "node", r.Node)
		return true, nil
	case apierrors.IsNotFound(err):
	case err != nil && copied:
		return false, fmt.Errorf("this is not the machine that joined the cluster as the node %s, by its hardware: look whether that one still runs: %w", r.Node, err)
	case err != nil:
		i.o.Log.Warn("start without the API", "node", r.Node, "err", err)
		i.mu.Lock()
		i.mu.silent = began
		i.mu.Unlock()
		return false, nil
	case copied && core.NodeIsReady(node) && node.Status.NodeInfo.SystemUUID != i.o.Machine:
		return false, refuse("this machine has the identity of the node %s, which runs elsewhere: its disk is a copy. Run 'kemudi reset' here, give this machine a name of its own (--node-name) and join with a token", r.Node)
	}
	if err := i.fits(ctx, Cluster{Servers: all, CA: []byte(r.CA)}); err != nil {
		return false, err
	}
	r.Servers, r.Machine = all, i.o.Machine
	return false, i.remember(r)
}

// self reads the machine's own Node by its own identity, from any of the servers.
func (i *Identity) self(ctx context.Context, servers []string) (node *corev1.Node, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, verifyWithin, errors.New("no server answered in time"))
	defer cancel()
	transport, err := https.New(https.Options{
		Servers: servers, CA: i.Cluster().CA, Agent: "kemudi-join", Certificate: i.Certificate, Logger: i.o.Log,
	})
	if err != nil {
		return nil, err
	}
	err = using(ctx, transport, func(ctx context.Context) (err error) {
		node, err = client.For(transport, core.Nodes).Get(ctx, "", i.o.NodeName)
		return err
	})
	return node, err
}
