package custom

import (
	"encoding/json"
	"testing"

	"github.com/kemudi/kemudi/internal/resource"
)

const stored = `{"apiVersion":"example.com/v1","kind":"Gear","metadata":{"name":"a","labels":{"x":"y"}},"spec":{"teeth":12,"wide":1.5},"status":{}}`

func TestObjectComesBackAsItWasStored(t *testing.T) {
	o := &Object{}
	if err := json.Unmarshal([]byte(stored), o); err != nil {
		t.Fatal(err)
	}
	o.SetGroupVersionKind(o.GroupVersionKind().GroupVersion().WithKind(""))
	o.TypeMeta.APIVersion = ""
	if got, err := o.AppendStored(nil); err != nil || string(got) != stored {
		t.Errorf("got %s, %v, want %s", got, err, stored)
	}
	if got, err := json.Marshal(o); err != nil || string(got) != `{"metadata":{"name":"a","labels":{"x":"y"}},"spec":{"teeth":12,"wide":1.5},"status":{}}` {
		t.Errorf("without a kind of its own: got %s, %v", got, err)
	}
	if o.tree != nil {
		t.Error("an object from the store has a tree") // C1
	}
}

func TestChangesOfACopyAreItsOwn(t *testing.T) {
	o := New("example.com/v1", "Gear")
	o.SetBody(map[string]any{"spec": map[string]any{"teeth": int64(1)}})
	copied := o.DeepCopyObject().(*Object)
	copied.Edit(func(body map[string]any) { body["spec"].(map[string]any)["teeth"] = int64(2) })
	tree := o.Tree()
	tree["spec"].(map[string]any)["teeth"] = int64(3)
	if got := o.Body()["spec"].(map[string]any)["teeth"]; got != int64(1) {
		t.Errorf("got %v, want what it was", got)
	}
	packed := o.Packed().(*Object)
	if packed.tree != nil || packed.body != `{"spec":{"teeth":1}}` {
		t.Errorf("packed: got %+v", packed)
	}
	if apiVersion, kind := packed.Type(); apiVersion != "example.com/v1" || kind != "Gear" {
		t.Errorf("got %s %s", apiVersion, kind)
	}
}

func TestStrictReadingTellsOfWhatIsTwiceAndUnknownOfMetadata(t *testing.T) {
	o := New("example.com/v1", "Gear")
	strict, err := o.DecodeStrict([]byte(`{"metadata":{"name":"a","odd":1},"spec":{"a":1,"a":2}}`), false)
	if err != nil || len(strict) != 2 || strict[0].Error() != `duplicate field "spec.a"` || strict[1].Error() != `unknown field "metadata.odd"` {
		t.Errorf("got %v, %v", strict, err)
	}
	for _, bad := range []string{`[]`, `null`, `{"metadata":{"labels":{"a":1}}}`, `{"kind":1}`} {
		if _, err := o.DecodeStrict([]byte(bad), true); err == nil {
			t.Errorf("%s: got no error", bad)
		}
	}
}

func TestNormalObjectsAreLeftAlone(t *testing.T) {
	asked := 0
	def := Define(Kind{Names: resource.Names{Group: "example.com", Version: "v1", Kind: "Gear", Plural: "gears"}, Versions: []Version{{
		Name: "v1", ID: "one", Served: true,
		Default: func(o *Object) { asked++; o.Edit(func(body map[string]any) { body["size"] = int64(1) }) },
	}}})
	live := def.VersionNamed("v1").Live
	o := def.New().(*Object)
	live.Normalize(o)
	live.Normalize(o)
	if packed := o.Packed(); asked != 1 || live.Normal(packed) != packed || asked != 1 {
		t.Errorf("defaulted %d times, want once", asked)
	}
	other := def.New().(*Object)
	if err := other.UnmarshalJSON([]byte(`{"apiVersion":"example.com/v1","kind":"Gear","metadata":{},"size":1}`)); err != nil {
		t.Fatal(err)
	}
	if live.Normal(other) != resource.Object(other) {
		t.Error("an object that has its defaults is another one with them")
	}
}

func TestNewObjectsHaveTheDefaultOfAStatusThatWasNotTaken(t *testing.T) {
	v := &Version{Name: "v1", ID: "1", Status: true, Default: func(o *Object) {
		if _, there := o.Body()["status"]; !there {
			o.Edit(func(body map[string]any) { body["status"] = "new" })
		}
	}}
	for _, sent := range []any{nil, "old"} {
		o := New("example.com/v1", "Gear")
		body := map[string]any{}
		if sent != nil {
			body["status"] = sent
		}
		o.SetBody(body)
		v.normalize(o)
		v.prepare(o, nil)
		if got := v.normal(o).(*Object).Body()["status"]; got != "new" {
			t.Errorf("status %v was sent: got %v, want the default", sent, got)
		}
	}
}
