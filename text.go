package drover

import "encoding/json"

// DefinitionText gives the text of a definition as it stands in a request: an
// object is its own text, a string holds the text (of YAML, or of JSON).
func DefinitionText(raw json.RawMessage) ([]byte, error) {
	if len(raw) == 0 || raw[0] != '"' {
		return raw, nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, Errorf(CodeInvalidRequest, "definition is no object and no string of YAML: %v", err)
	}
	return []byte(text), nil
}
