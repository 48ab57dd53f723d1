package engine

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/flowfabric/flowfabric-go/id"
)

// A spec that differs from another in any field is not like it, except for the fields that are set individually.
func TestSpecsAreAlikeUnlessAFieldDiffers(t *testing.T) {
	own := map[string]bool{"ID": true, "Payload": true, "Priority": true, "Tags": true, "Limits": true, "Fair": true}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[ExecutionSpec]()) {
		var plain, other ExecutionSpec
		at := reflect.NewAt(field.Type, unsafe.Add(unsafe.Pointer(&other), field.Offset)).Elem()
		switch field.Type.Kind() {
		case reflect.String:
			at.SetString("x")
		case reflect.Int, reflect.Int64:
			at.SetInt(1)
		case reflect.Bool:
			at.SetBool(true)
		case reflect.Pointer:
			at.Set(reflect.New(field.Type.Elem()))
		case reflect.Slice:
			at.Set(reflect.MakeSlice(field.Type, 1, 1))
		case reflect.Map:
			at.Set(reflect.MakeMap(field.Type))
			at.SetMapIndex(reflect.ValueOf("x"), reflect.ValueOf("y"))
		case reflect.Interface:
			at.Set(reflect.ValueOf(errors.New("mistake")))
		case reflect.Struct:
			switch field.Type {
			case reflect.TypeFor[time.Time]():
				at.Set(reflect.ValueOf(time.UnixMilli(1)))
			case reflect.TypeFor[id.BusinessKey]():
				at.Set(reflect.ValueOf(id.BusinessKey{Name: "x", Value: "y"}))
			case reflect.TypeFor[Sequence]():
				at.Set(reflect.ValueOf(Sequence{Key: "x"}))
			case reflect.TypeFor[FairShare]():
				at.Set(reflect.ValueOf(FairShare{Tenant: "x"}))
			default:
				reflect.NewAt(reflect.TypeFor[byte](), unsafe.Pointer(at.UnsafeAddr())).Elem().SetUint(1)
			}
		}
		if at.IsZero() {
			t.Errorf("%s is not set", field.Name)
		}
		if plain.isLike(&other) != own[field.Name] || other.isLike(&plain) != own[field.Name] {
			t.Errorf("like another in spite of %s: %t and %t, want %t", field.Name, plain.isLike(&other), other.isLike(&plain), own[field.Name])
		}
		delete(own, field.Name)
		if repeats := !slices.Contains([]string{"IdempotencyKey", "BusinessKey", "Sequence", "mistake"}, field.Name); other.isLike(&other) != repeats {
			t.Errorf("%s: like itself %t, want %t", field.Name, !repeats, repeats)
		}
	}
	if len(own) > 0 {
		t.Errorf("no such fields: %q", slices.Collect(maps.Keys(own)))
	}
}
