package resource

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Column is one column of kubectl get. [Define] puts NAME in front, and AGE
// before the first column that shows only with -o wide; a column of either name
// in a Spec takes the place of the automatic one.
type Column[T Object] struct {
	Name        string // "READY"'s name is "Ready": kubectl makes it upper case
	Type        string // OpenAPI type: string (default), integer, number, boolean, date
	Format      string
	Description string
	Priority    int32 // 1: only with -o wide
	Value       func(obj T) any
}

// Rows are the rows of kubectl get.
type Rows[T Object] struct {
	// Order, if not nil, is that of the rows of a list, or of a page of one, which is
	// in the order of names itself.
	Order func(a, b T) int
	// Conditions, if not nil, are what is said of a row as a whole.
	Conditions func(obj T) []metav1.TableRowCondition
}

// Definition is the column as tables describe it.
func (c *Column[T]) Definition() metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description, Priority: c.Priority}
}

// Age prints how long ago t was, as kubectl does; "<unknown>" if t is zero.
func Age(t metav1.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t.Time))
}

// AgeColumn is the age of an object, for a Spec that has columns behind it.
func AgeColumn[T Object]() Column[T] {
	return Column[T]{
		Name: "Age", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
		Value: func(obj T) any { return Age(obj.GetCreationTimestamp()) },
	}
}

// nameColumn is the name of an object.
func nameColumn[T Object]() Column[T] {
	return Column[T]{
		Name: "Name", Format: "name",
		Value: func(obj T) any { return obj.GetName() },
	}
}

// allColumns adds the columns that every kind has to those declared.
func allColumns[T Object](declared []Column[T], ageless bool) []Column[T] {
	has := func(name string) bool {
		return slices.ContainsFunc(declared, func(c Column[T]) bool { return c.Name == name })
	}
	columns := slices.Clone(declared)
	if !ageless && !has("Age") {
		at := slices.IndexFunc(columns, func(c Column[T]) bool { return c.Priority > 0 })
		if at < 0 {
			at = len(columns)
		}
		columns = slices.Insert(columns, at, AgeColumn[T]())
	}
	if !has("Name") {
		columns = slices.Insert(columns, 0, nameColumn[T]())
	}
	for i := range columns {
		columns[i].Type = cmp.Or(columns[i].Type, "string")
		if columns[i].Name == "Name" {
			columns[i].Description = cmp.Or(columns[i].Description, metav1.ObjectMeta{}.SwaggerDoc()["name"])
		}
	}
	return columns
}
