package redfish

// maxKept bounds the bytes of the answers that one operation keeps.
const maxKept = 8 << 20

// keptDocs are the resources that one operation has read, so that it reads none of them again. It
// is used by one goroutine. A nil pointer keeps nothing.
type keptDocs struct {
	docs  map[string]doc
	bytes int
}

func newKeptDocs() *keptDocs { return &keptDocs{docs: map[string]doc{}} }

func (k *keptDocs) doc(link string) doc {
	if k == nil {
		return nil
	}
	return k.docs[link]
}

func (k *keptDocs) keep(link string, d doc, size int) {
	if k == nil || k.bytes+size > maxKept {
		return
	}
	k.bytes += size
	k.docs[link] = d
}
