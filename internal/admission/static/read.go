package static

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kemudi/kemudi/internal/api/admissionregistration"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/wire"
)

// read reads all files of the directory whose names say that they are meant.
func (s *Set) read() (*Content, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("read the directory: %w", err)
	}
	r := reading{kinds: &s.kinds, files: map[string]string{}, objects: map[*resource.Def][]resource.Object{}}
	digest, some := sha256.New(), false
	for _, e := range entries {
		if e.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(e.Name()))) {
			continue
		}
		r.file = filepath.Join(s.dir, e.Name())
		data, err := os.ReadFile(r.file)
		if err != nil {
			return nil, fmt.Errorf("read a manifest: %w", err)
		}
		if len(data) == 0 {
			continue
		}
		some = true
		digest.Write(data)
		digest.Write([]byte{0})
		if err := r.documents(data); err != nil {
			return nil, fmt.Errorf("error loading %s: %w", r.file, err)
		}
	}
	c := &Content{objects: sorted(r.objects)}
	if some {
		c.digest = fmt.Sprintf("sha256:%x", digest.Sum(nil))
	}
	if s.kinds.Whole != nil {
		if err := s.kinds.Whole(c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// reading is what was read so far.
type reading struct {
	kinds   *Kinds
	file    string            // that is read
	files   map[string]string // where an object of a kind and name is, by both
	objects map[*resource.Def][]resource.Object
}

// documents reads the documents of a file.
func (r *reading) documents(data []byte) error {
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		doc, err := docs.Read()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("split documents: %w", err)
		}
		if len(bytes.TrimSpace(doc)) == 0 {
			continue
		}
		object, twice, err := wire.YAMLToJSON(doc, true)
		if err := errors.Join(err, twice); err != nil {
			return err
		}
		if err := r.object(object); err != nil {
			return err
		}
	}
}

// object reads an object, or a list of some.
func (r *reading) object(doc []byte) error {
	var is metav1.TypeMeta
	if err := json.Unmarshal(doc, &is); err != nil {
		return fmt.Errorf("read apiVersion and kind: %w", err)
	}
	gvk := schema.FromAPIVersionAndKind(is.APIVersion, is.Kind)
	if is.APIVersion == "v1" && is.Kind == "List" {
		return r.list(doc)
	}
	i := slices.IndexFunc(r.kinds.Defs, func(d *resource.Def) bool { return d.GVK() == gvk })
	if i < 0 {
		return fmt.Errorf("%s is not for the admission plugin %s: want %s", gvk, r.kinds.Plugin, wanted(r.kinds.Defs))
	}
	def := r.kinds.Defs[i]
	obj := def.New()
	strict, err := wire.DecodeJSONStrict(doc, obj)
	if err := errors.Join(append([]error{err}, strict...)...); err != nil {
		return fmt.Errorf("strict decoding error: %w", err)
	}
	if err := r.fits(def, obj); err != nil {
		return err
	}
	r.objects[def] = append(r.objects[def], obj)
	return nil
}

func wanted(defs []*resource.Def) string {
	names := make([]string, len(defs))
	for i, d := range defs {
		names[i] = d.GVK().GroupVersion().String() + " " + d.Kind
	}
	return strings.Join(names, ", ")
}

func (r *reading) list(doc []byte) error {
	var list metav1.List
	strict, err := wire.DecodeJSONStrict(doc, &list)
	if err := errors.Join(append([]error{err}, strict...)...); err != nil {
		return fmt.Errorf("strict decoding error: %w", err)
	}
	for _, item := range list.Items {
		if err := r.object(item.Raw); err != nil {
			return err
		}
	}
	return nil
}

// fits gives an object what it leaves open, and refuses it as the API would: but for its name, which is of those
// that the API has no objects of.
func (r *reading) fits(def *resource.Def, obj resource.Object) error {
	name := obj.GetName()
	key := def.Kind + "/" + name
	switch {
	case name == "":
		return fmt.Errorf("resource in file %q must have a name", r.file)
	case !strings.HasSuffix(name, admissionregistration.StaticSuffix):
		return fmt.Errorf("%q in file %q must have a name ending with %q", name, r.file, admissionregistration.StaticSuffix)
	case r.files[key] != "":
		return fmt.Errorf("duplicate name %q found in file %q (previously seen in %q)", name, r.file, r.files[key])
	}
	r.files[key] = r.file
	def.Default(obj)
	errs := resource.NewErrors()
	for _, wrong := range resource.DNS1123Subdomain(name, false) {
		errs.At("metadata").Invalid("name", name, wrong)
	}
	def.Validate(obj, nil, errs)
	if err := errs.List().ToAggregate(); err != nil {
		return fmt.Errorf("%s %q: %w", def.Kind, name, err)
	}
	if err := r.kinds.Check(obj); err != nil {
		return err
	}
	obj.SetGeneration(1)
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return nil
}
