package flow_test

import "encoding/json"

type raw = json.RawMessage
