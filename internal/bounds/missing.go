package bounds

import (
	"reflect"
)

// Missing lists the fields of a type, and of what it holds, that have no bounds: numbers without
// minimum and maximum, texts without maxLength, enum or a pattern that bounds them, lists without
// maxItems, and maps without maxProperties.
func Missing(t reflect.Type) []string {
	w := walker{seen: map[reflect.Type]bool{}}
	w.field(t, t.String(), "")
	return w.found
}

type walker struct {
	seen  map[reflect.Type]bool
	found []string
}

func (w *walker) need(at string, tag reflect.StructTag, names ...string) {
	for _, name := range names {
		if tag.Get(name) == "" {
			w.found = append(w.found, at+" has no "+name)
		}
	}
}

func (w *walker) field(t reflect.Type, at string, tag reflect.StructTag) {
	isTime := t.PkgPath() == "time" && t.Name() == "Time"
	switch {
	case isTime || tag.Get("enum") != "" && t.Kind() != reflect.Slice:
		return
	case isText(t):
		w.need(at, tag, "maxLength")
		return
	}
	switch t.Kind() { //nolint:exhaustive // a bool is bounded, and what no input can hold is in default
	case reflect.Bool:
	case reflect.Pointer:
		w.field(t.Elem(), at, tag)
	case reflect.Struct:
		w.fields(t)
	case reflect.String:
		w.need(at, tag, "maxLength")
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			w.need(at, tag, "maxLength")
			return
		}
		w.need(at, tag, "maxItems")
		w.field(t.Elem(), at+"[]", w.items(tag))
	case reflect.Map:
		w.need(at, tag, "maxProperties")
		w.field(t.Elem(), at+"{}", w.items(tag))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Float32, reflect.Float64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		w.need(at, tag, "minimum", "maximum")
	default:
		w.found = append(w.found, at+" is a "+t.Kind().String()+", which cannot be bounded")
	}
}

func (w *walker) items(tag reflect.StructTag) reflect.StructTag {
	if enum := tag.Get("enum"); enum != "" {
		return reflect.StructTag(`enum:"` + enum + `"`)
	}
	return itemTag(tag)
}

func (w *walker) fields(t reflect.Type) {
	if w.seen[t] {
		return
	}
	w.seen[t] = true
	for f := range t.Fields() {
		if f.IsExported() && f.Tag.Get("json") != "-" {
			w.field(f.Type, t.String()+"."+f.Name, f.Tag)
		}
	}
}
