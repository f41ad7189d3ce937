package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Sizes of the comparison of a custom kind with a built-in one.
const (
	twinsMade    = 4000 // objects of each kind
	twinsRounds  = 8    // of each way, by turns
	twinsGets    = 1000 // in a round
	twinsLists   = 10
	twinsWatches = 100
	twinsRate    = 20 // changes a second
	twinsEvents  = 2  // rounds of watches
)

// twin is one of two kinds whose objects are the same but for their kinds: config maps, and what a definition makes of them.
type twin struct {
	all  string // path of the objects of all namespaces
	dir  func(i int) string
	body func(i int) []byte
}

func (t *twin) path(i int) string { return t.dir(i) + "/" + configMapName(i) }

// twins are the custom kind and the built-in one.
func twins() [2]*twin {
	of := func(root, plural string, obj *corev1.ConfigMap) *twin {
		return &twin{root + "/" + plural, func(i int) string { return root + "/namespaces/" + namespace(i) + "/" + plural }, bodies(toJSON(obj), configMapName)}
	}
	own := realConfigMap()
	own.APIVersion, own.Kind = "bench.example.com/v1", "Setting"
	return [2]*twin{of("/apis/bench.example.com/v1", "settings", own), of("/api/v1", "configmaps", realConfigMap())}
}

// definition makes the custom kind.
func definition() *apiextensionsv1.CustomResourceDefinition {
	text := &apiextensionsv1.JSONSchemaProps{Type: "string"}
	return &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "settings.bench.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "bench.example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "settings", Singular: "setting", Kind: "Setting", ListKind: "SettingList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"data": {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: text}},
				}},
			}}},
		},
	}
}

// custom measures what objects of a custom kind take of what the same objects of a built-in kind do, by turns.
func (b *bench) custom(ctx context.Context) error {
	return b.fromOutside(ctx, func(o *outsider) error {
		steps := []func(context.Context) error{o.namespaces, o.define, o.twinsWrite, o.twinsRead, o.twinsWatch}
		for _, step := range steps {
			if err := step(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// define makes the kind, and waits until it is served.
func (o *outsider) define(ctx context.Context) error {
	body := toJSON(definition())
	made := call{http.MethodPost, mediaJSON, func(int) string { return "/apis/apiextensions.k8s.io/v1/customresourcedefinitions" }, func(int) []byte { return body }}
	if _, err := o.send(ctx, o.conns[0], made, 0); err != nil {
		return err
	}
	_, err := try(ctx, func() (int64, error) {
		return o.send(ctx, o.conns[0], call{method: http.MethodGet, path: func(int) string { return twins()[0].all }}, 0)
	})
	return err
}

// beside measures something of both kinds by turns, and notes the ratio of their medians.
func (o *outsider) beside(m measure, rounds int, one func(t *twin, round int) (time.Duration, error)) error {
	var took [2][]float64
	kinds := twins()
	for round := range rounds {
		for turn := range kinds {
			side := (round + turn) % len(kinds)
			cpu, err := one(kinds[side], round)
			if err != nil {
				return err
			}
			took[side] = append(took[side], millis.of(cpu))
		}
	}
	own, other := median(took[0]), median(took[1])
	o.b.results[m] = own / other
	o.b.say("%s: %s (%s and %s)", m.name, m.unit.format(own/other), millis.format(own), millis.format(other))
	return nil
}

func (o *outsider) twinsWrite(ctx context.Context) error {
	const each = twinsMade / twinsRounds
	return o.beside(customCreate, twinsRounds, func(t *twin, round int) (time.Duration, error) {
		from := round * each
		return o.each(ctx, each, call{
			http.MethodPost, mediaJSON, func(i int) string { return t.dir(from + i) }, func(i int) []byte { return t.body(from + i) },
		})
	})
}

func (o *outsider) twinsRead(ctx context.Context) error {
	err := o.beside(customGet, twinsRounds, func(t *twin, _ int) (time.Duration, error) {
		return o.each(ctx, twinsGets, call{method: http.MethodGet, media: mediaJSON, path: func(i int) string { return t.path(i * 7 % twinsMade) }})
	})
	if err != nil {
		return err
	}
	for _, w := range []struct {
		m     measure
		limit int
	}{{customList, 0}, {customPages, pageLimit}} {
		for _, t := range twins() { // what is made once is made
			if err := o.listThrough(ctx, t.all, mediaJSON, w.limit); err != nil {
				return err
			}
		}
		err := o.beside(w.m, twinsLists, func(t *twin, _ int) (time.Duration, error) {
			r, err := o.spent(func() error { return o.listThrough(ctx, t.all, mediaJSON, w.limit) })
			return r.cpu, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (o *outsider) twinsWatch(ctx context.Context) error {
	return o.beside(customEvent, twinsEvents, func(t *twin, _ int) (time.Duration, error) {
		change := call{http.MethodPatch, mediaMerge, t.path, func(int) []byte { return stamp() }}
		alone, err := o.each(ctx, outsideWrites, change)
		if err != nil {
			return 0, err
		}
		f := &following{all: t.all, change: change, watches: twinsWatches, changes: twinsRate * int(watchedFor/time.Second)}
		r, err := o.spent(func() error { return o.follow(ctx, f, time.Second/twinsRate) })
		if err != nil {
			return 0, fmt.Errorf("watch %s: %w", t.all, err)
		}
		return (r.cpu - f.opening - alone*time.Duration(f.changes)) / time.Duration(f.watches*f.changes), nil
	})
}
