// Package hostile holds texts that a tenant, a BMC or a node could send to harm who reads them.
// The tests of everything that shows such texts use the same list.
package hostile

import (
	_ "embed"
	"encoding/json"
)

//go:embed texts.json
var file []byte

// Text is one text with what it tries.
type Text struct {
	Name string `json:"name"`
	Text string `json:"text"`
	// Repeat is how often Text stands in a row; 0 is once.
	Repeat int `json:"repeat,omitempty"`
}

// Texts returns the list.
func Texts() ([]Text, error) {
	var list []Text
	if err := json.Unmarshal(file, &list); err != nil {
		return nil, err
	}
	for i, t := range list {
		whole := t.Text
		for range t.Repeat - 1 {
			whole += t.Text
		}
		list[i].Text = whole
	}
	return list, nil
}
