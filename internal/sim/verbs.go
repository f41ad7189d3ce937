package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/task"
)

// verbs are the commands of scripts. Objects are named kind/name or
// kind/namespace/name, with any of the kind's names; the namespace is otherwise
// default.
//
//	nodes N                     add nodes n1 to nN
//	node NAME [cpu=4] [memory=16Gi] [pods=110] [label=k=v] [taint=k=v:Effect]
//	stop-node NAME              the node falls silent
//	start-node NAME             it is back
//	step-clock NAME DURATION    the node's clock is set, ahead or back
//	restart                     the control plane dies and starts again from what is stored
//	contend NAME...             control planes of these names stand for election; the first one only serves the API
//	start-plane NAME            another one does
//	stop-plane NAME             one of them ends in order; NAME may be leader, the one that runs the controllers
//	kill-plane NAME             it ends in the middle of what it does
//	freeze-plane NAME N         after N more writes it stands still, with the next one on its way, and knows nothing of it
//	thaw-plane NAME             it goes on
//	leader LEASE                print which of them holds a lease in kube-system
//	cloud FILE                  the keys of a YAML file become those of the cloud's file
//	show-cloud                  print the cloud's file
//	apply FILE                  server-side apply of all objects in a file, with force
//	create FILE                 create them
//	delete OBJECT [grace=N] [policy=Orphan|Background|Foreground]
//	delete-collection KIND [-l selector]   all of them in the namespace default
//	evict POD [grace=N] [dry-run]         print what became of it: "evicted", or "refused:" and the cause
//	drain NODE                             cordon it and evict its pods once, oldest first; print a line each: label app, outcome
//	patch OBJECT JSON [sub=SUBRESOURCE]    JSON merge patch
//	scale OBJECT N              through the scale subresource
//	load -l selector [cpu=Q] [memory=Q]    what the pods in the namespace default use together from now on, in equal shares
//	metric NAME Q               the value of a metric from now on that another server serves: external/METRIC,
//	                            pods/METRIC (of each pod) or PLURAL.GROUP/OBJECT/METRIC (of one object)
//	get KIND|OBJECT [-A] [-l selector] [-o wide|name|jsonpath=...]   print
//	events OBJECT               print the events of an object, oldest first: type, reason, message
//	track [-l selector]         from now on, note how the pods in the namespace default come and go
//	tracked                     print between what numbers they were, a line each: pods, active (not
//	                            ending), ready, revisions (templates of Deployments at once); ends the tracking
//	raw METHOD PATH [FILE]      send an HTTP request, with FILE (YAML) as its body, and print the answer
//	save NAME                   ${NAME} stands for what was printed last, without the space around it
//	stdout REGEX                what was printed last must match, anywhere ((?s), (?m) as usual)
//	! stdout REGEX              it must not
//	wait OBJECT TEST [timeout=10m]    until condition=TYPE[=STATUS], deleted, or jsonpath=EXPR=VALUE
//	wait-count KIND N [-l selector] [timeout=10m]   until so many exist in the namespace default
//	advance DURATION            let time pass
//	csr NAME [user=u,group...] signer=s usages=a,b [cn=] [org=] [dns=] [ip=] [expires=SECONDS]   request a certificate of kubernetes.io/s
//	certificate NAME            print what is in the certificate that was signed
//	token SECRET                print whose the token in a secret is, and the groups
var verbs = map[string]func(ctx context.Context, r *run, args []string) error{
	"nodes": addNodes, "node": addNode, "stop-node": stopNode, "start-node": startNode, "step-clock": stepClock, "restart": restart,
	"cloud": setCloud, "show-cloud": showCloud, "apply": apply, "create": create, "delete": remove, "delete-collection": removeAll, "evict": evict, "drain": drain, "patch": mergePatch, "scale": scale,
	"contend": contend, "start-plane": startPlane, "stop-plane": stopPlane, "kill-plane": killPlane, "freeze-plane": freezePlane, "thaw-plane": thawPlane, "leader": leader,
	"load": setLoad, "metric": setMetric, "get": get, "events": events, "track": track, "tracked": tracked, "raw": raw, "save": save, "stdout": stdout, "wait": waitFor, "wait-count": waitCount, "advance": advance,
	"csr": requestCertificate, "certificate": printCertificate, "token": whoseToken,
}

// errArgs says that a command was not written as it must be.
var errArgs = errors.New("the command's arguments are wrong; see verbs.go")

func addNodes(_ context.Context, r *run, args []string) error {
	if len(args) != 1 {
		return errArgs
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return errArgs
	}
	for i := range n {
		if err := r.c.AddNode(NodeOptions{Name: fmt.Sprintf("n%d", i+1)}); err != nil {
			return err
		}
	}
	return nil
}

func addNode(_ context.Context, r *run, args []string) error {
	if len(args) == 0 {
		return errArgs
	}
	o := NodeOptions{Name: args[0], Labels: map[string]string{}}
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "cpu":
			o.CPU = value
		case "memory":
			o.Memory = value
		case "pods":
			n, err := strconv.Atoi(value)
			if err != nil {
				return errArgs
			}
			o.MaxPods = n
		case "label":
			k, v, _ := strings.Cut(value, "=")
			o.Labels[k] = v
		case "taint":
			taint, err := parseTaint(value)
			if err != nil {
				return err
			}
			o.Taints = append(o.Taints, taint)
		default:
			return errArgs
		}
	}
	return r.c.AddNode(o)
}

func stopNode(_ context.Context, r *run, args []string) error {
	if len(args) != 1 {
		return errArgs
	}
	return r.c.StopNode(args[0])
}

func startNode(_ context.Context, r *run, args []string) error {
	if len(args) != 1 {
		return errArgs
	}
	return r.c.StartNode(args[0])
}

func stepClock(_ context.Context, r *run, args []string) error {
	if len(args) != 2 {
		return errArgs
	}
	d, err := time.ParseDuration(args[1])
	if err != nil {
		return errArgs
	}
	return r.c.StepClock(args[0], d)
}

func restart(_ context.Context, r *run, args []string) error {
	if len(args) > 0 {
		return errArgs
	}
	r.untrack()
	return r.c.Restart()
}

func apply(ctx context.Context, r *run, args []string) error {
	return r.eachObject(args, func(o object, data []byte) error {
		_, err := r.c.API().Do(ctx, &client.Request{
			Verb: "patch", Def: o.def, Namespace: o.namespace, Name: o.name,
			Patch: data, PatchType: types.ApplyPatchType, FieldManager: "sim", Force: ptr.To(true),
		})
		return err
	})
}

func create(ctx context.Context, r *run, args []string) error {
	return r.eachObject(args, func(o object, data []byte) error {
		obj := o.def.New()
		if err := json.Unmarshal(data, obj); err != nil {
			return err
		}
		obj.SetNamespace(o.namespace)
		_, err := r.c.API().Do(ctx, &client.Request{Verb: "create", Def: o.def, Namespace: o.namespace, Name: o.name, Object: obj})
		return err
	})
}

func remove(ctx context.Context, r *run, args []string) error {
	o, rest, err := objectArg(args)
	if err != nil {
		return err
	}
	var options metav1.DeleteOptions
	for _, arg := range rest {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "grace":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return errArgs
			}
			options.GracePeriodSeconds = &n
		case "policy":
			options.PropagationPolicy = ptr.To(metav1.DeletionPropagation(value))
		default:
			return errArgs
		}
	}
	_, err = r.c.API().Do(ctx, &client.Request{Verb: "delete", Def: o.def, Namespace: o.namespace, Name: o.name, Delete: options})
	return err
}

func removeAll(ctx context.Context, r *run, args []string) error {
	s, rest, err := parseSelection(args)
	if err != nil || len(rest) > 0 || s.name != "" {
		return errors.Join(err, errArgs)
	}
	req := &client.Request{Verb: "deletecollection", Def: s.def, Namespace: s.namespace}
	if s.sel != nil {
		req.List.LabelSelector = s.sel.String()
	}
	_, err = r.c.API().Do(ctx, req)
	return err
}

func mergePatch(ctx context.Context, r *run, args []string) error {
	o, rest, err := objectArg(args)
	if err != nil || len(rest) < 1 || len(rest) > 2 {
		return errors.Join(err, errArgs)
	}
	sub := ""
	if len(rest) == 2 {
		var ok bool
		if sub, ok = strings.CutPrefix(rest[1], "sub="); !ok {
			return errArgs
		}
	}
	_, err = r.c.API().Do(ctx, &client.Request{
		Verb: "patch", Def: o.def, Sub: sub, Namespace: o.namespace, Name: o.name, Patch: []byte(rest[0]), PatchType: types.MergePatchType,
	})
	return err
}

func scale(ctx context.Context, r *run, args []string) error {
	o, rest, err := objectArg(args)
	if err != nil || len(rest) != 1 {
		return errors.Join(err, errArgs)
	}
	_, err = r.c.API().Do(ctx, &client.Request{
		Verb: "patch", Def: o.def, Sub: "scale", Namespace: o.namespace, Name: o.name,
		Patch: []byte(`{"spec":{"replicas":` + rest[0] + `}}`), PatchType: types.MergePatchType,
	})
	return err
}

func setLoad(_ context.Context, r *run, args []string) error {
	if len(args) < 3 || args[0] != "-l" {
		return errArgs
	}
	l := Load{Namespace: metav1.NamespaceDefault}
	var err error
	if l.Selector, err = labels.Parse(args[1]); err != nil {
		return err
	}
	for _, arg := range args[2:] {
		key, value, _ := strings.Cut(arg, "=")
		q, err := resource.ParseQuantity(value)
		if err != nil {
			return fmt.Errorf("%s: %w", arg, err)
		}
		switch key {
		case "cpu":
			l.CPU = q
		case "memory":
			l.Memory = q
		default:
			return errArgs
		}
	}
	r.c.SetLoad(l)
	return nil
}

func save(_ context.Context, r *run, args []string) error {
	if len(args) != 1 {
		return errArgs
	}
	r.saved[args[0]] = strings.TrimSpace(r.stdout)
	return nil
}

func stdout(_ context.Context, r *run, args []string) error {
	if len(args) != 1 {
		return errArgs
	}
	re, err := regexp.Compile(args[0])
	if err != nil {
		return err
	}
	if !re.MatchString(r.stdout) {
		return fmt.Errorf("got:\n%s\nwant a match of: %s", r.stdout, args[0])
	}
	return nil
}

func advance(ctx context.Context, _ *run, args []string) error {
	if len(args) != 1 {
		return errArgs
	}
	d, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	return task.Sleep(ctx, d)
}
