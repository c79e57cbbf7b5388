package api

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/droverhq/drover"
)

// schema is a JSON Schema, or a part of one.
type schema = map[string]any

// schemas makes JSON Schemas of the types of the protocol, from what
// encoding/json makes of them. They describe what is well formed. Readers are
// more patient: they ignore unknown fields, so that schemas forbid none.
type schemas struct{ defs schema }

// schemaFor gives the JSON Schema of a type as text; nil: an empty object.
// needs are fields that must be there although the type leaves them out where
// they are empty.
func schemaFor(t reflect.Type, needs ...string) string {
	root := schema{"type": "object"}
	if t != nil {
		s := schemas{defs: schema{}}
		root = s.object(t)
		if len(needs) > 0 {
			required, _ := root["required"].([]string)
			root["required"] = slices.Concat(required, needs)
		}
		if len(s.defs) > 0 {
			root["$defs"] = s.defs
		}
	}
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	text, _ := json.Marshal(root) // maps, lists and texts
	return string(text)
}

// object describes a struct by its fields, those of structs that it embeds
// included.
func (s schemas) object(t reflect.Type) schema {
	properties := schema{}
	var required []string
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || !f.IsExported() || name == "-" {
			continue
		}
		about, known := fields[ownerOf(t, f)+"."+name]
		if known && about == "" {
			continue
		}
		optional := options == "omitempty"
		p := s.of(f.Type)
		if f.Type.Kind() == reflect.Pointer && !optional {
			p = schema{"anyOf": []any{p, schema{"type": "null"}}}
		}
		if about != "" {
			p["description"] = about
		}
		properties[name] = p
		if !optional {
			required = append(required, name)
		}
	}
	o := schema{"type": "object", "properties": properties}
	if len(required) > 0 {
		o["required"] = required
	}
	return o
}

// ownerOf names the struct that has a field, which t may embed.
func ownerOf(t reflect.Type, f reflect.StructField) string {
	for _, i := range f.Index[:len(f.Index)-1] {
		t = t.Field(i).Type
	}
	return t.Name()
}

// of describes any type.
func (s schemas) of(t reflect.Type) schema {
	switch t {
	case reflect.TypeFor[json.RawMessage]():
		return schema{}
	case reflect.TypeFor[time.Time]():
		return schema{"type": "string", "format": "date-time"}
	case reflect.TypeFor[*drover.ReplyTo]():
		return schema{"anyOf": []any{s.of(t.Elem()), schema{"const": true}}}
	case reflect.TypeFor[drover.NotifyList]():
		one := s.of(t.Elem())
		return schema{"anyOf": []any{one, schema{"type": "array", "items": one, "maxItems": drover.MaxSubscribers}}}
	}
	if t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return schema{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.Struct:
		if _, ok := s.defs[t.Name()]; !ok {
			s.defs[t.Name()] = nil // so that a type that holds itself ends here
			s.defs[t.Name()] = s.object(t)
		}
		return schema{"$ref": "#/$defs/" + t.Name()}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return schema{"type": "string", "contentEncoding": "base64"}
		}
		return schema{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.String:
		return text(t)
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Uint64:
		return schema{"type": "integer", "minimum": 0}
	default:
		return schema{"type": "integer"}
	}
}

// text describes the types of texts that have a grammar.
func text(t reflect.Type) schema {
	s := schema{"type": "string"}
	switch t {
	case reflect.TypeFor[drover.RunID](), reflect.TypeFor[drover.WorkflowName]():
		s["pattern"] = "^[A-Za-z0-9_-]{1,128}$"
	case reflect.TypeFor[drover.Hash]():
		s["pattern"] = "^[0-9a-f]{64}$"
	case reflect.TypeFor[drover.Status]():
		s["enum"] = []drover.Status{
			drover.StatusRunning, drover.StatusWaiting, drover.StatusBlocked, drover.StatusCompleted, drover.StatusFailed,
			drover.StatusCancelled, drover.StatusCompensated, drover.StatusCompensationFailed,
		}
	case reflect.TypeFor[drover.DeliveryStatus]():
		s["enum"] = []drover.DeliveryStatus{
			drover.DeliveryNone, drover.DeliveryHeld, drover.DeliveryConsumed, drover.DeliveryPending, drover.DeliveryDelivered, drover.DeliveryDead,
		}
	case reflect.TypeFor[drover.NodeStatus]():
		s["enum"] = []drover.NodeStatus{
			drover.NodePending, drover.NodeRunning, drover.NodeWaiting, drover.NodeDone,
			drover.NodeFailed, drover.NodeCancelled, drover.NodeSkipped,
		}
	}
	return s
}

// fields says what the fields of requests are for. One that is described as ""
// is no field for clients.
var fields = map[string]string{
	"StartRequest.run_id":          "yours to choose: the same start sent twice is one run; absent: derived from idempotency_key, or made up",
	"StartRequest.definition":      "the definition itself, as an object or as a string of YAML; exactly one of definition, hash and workflow",
	"StartRequest.hash":            "of a definition that is stored",
	"StartRequest.workflow":        "name of a registered definition",
	"StartRequest.input":           "any JSON value, at most 1 MiB; absent: null",
	"StartRequest.idempotency_key": "makes the run id: two starts with one key are one run",
	"StartRequest.notify":          "who is told the outcome",
	"StartRequest.reply_to":        "one more who is told, as text: the session of whoever starts the run; an object, or true",
	"StartRequest.hold":            "keeps the outcome for whoever starts the run and waits for it",
	"StartRequest.tags":            "kept with the run and in its outcome",
	"StartRequest.parent":          "",
	"StartRequest.hooks":           "",
	"Notify.subject":               "gets the outcome as a request, again and again until there is a reply, which is the receipt",
	"Notify.stream_subject":        "gets it as a message of a stream, whose acknowledgement is the receipt",
	"Notify.url":                   "gets it as a signed HTTP POST; a status from 200 to 299 is the receipt",
	"Notify.function":              "gets it as the input of a call; that it ends well is the receipt",
	"Notify.session":               "set by Drover alone, for reply_to",
	"Notify.seal":                  "",
	"Notify.template":              "in front of the text for a session",
	"Notify.secret":                "name of the secrets that sign, with url; absent: default",
	"Notify.batch":                 "several outcomes in one request, with subject",
	"Notify.inline":                "not told if somebody who waits for the run took its outcome",
	"Notify.timeout":               "of one attempt; absent: 10s",
	"Notify.max_age":               "for how long it is tried; absent: 24h",
	"Notify.max_attempts":          "how often it is tried; absent: as often as there is time for",
	"Batch.max":                    "how many outcomes at most, 2 to 1000",
	"Batch.wait":                   "how long the first of them may wait for others, at most 1m",
	"ReplyTo.template":             "in front of the text",
	"ReplyTo.inline":               "not told if somebody who waits for the run took its outcome",
	"HoldRequest.run_id":           "the run",
	"HoldRequest.waiter":           "a name that nobody else uses, 1 to 128 bytes",
	"HoldRequest.for":              "how long the outcome is kept for the waiter; absent: 30s, at most 10m",
	"WaiterRequest.run_id":         "the run",
	"WaiterRequest.waiter":         "the name that the hold has",
	"StopRequest.run_id":           "the run",
	"StopRequest.reason":           "for the outcome of the run",
	"StopRequest.force":            "ends a program at once: its body undoes nothing",
	"JournalRequest.run_id":        "the run, of a program",
	"JournalRequest.from":          "the first entry that is wanted; absent: 1",
	"DeliverRequest.run_id":        "the run",
	"DeliverRequest.name":          "of the wait",
	"DeliverRequest.payload":       "any JSON value, at most 1 MiB; absent: null",
	"DeliverRequest.id":            "makes a repeat harmless",
	"DeliverRequest.hook":          "",
	"DeliverRequest.claim":         "",
	"DeliverRequest.respond":       "",
	"HookRequest.token":            "of the hook, any text of 1 to 512 bytes",
	"HookRequest.payload":          "any JSON value, at most 1 MiB; absent: null",
	"HookRequest.id":               "makes a repeat harmless, also where the token has changed hands meanwhile; the same id with another payload is a conflict",
	"HookRequest.start":            "what to run where nobody holds the token: the run holds it from its first moment, and the payload is its first delivery",
	"HookRequest.async":            "answer once the delivery is durable, before the run has taken it; what it then refuses is a dead letter",
	"HookRequest.public":           "only to a hook that is public; any other is not found",
	"HookRequest.respond":          "an inbox that gets what the run answers, with the header Drover-Status",
	"HookFilter.tags":              "only hooks with all of these tags",
	"HookFilter.prefix":            "only tokens that begin with this",
	"HookFilter.run_id":            "only hooks of this run",
	"HookManyRequest.payload":      "any JSON value, at most 1 MiB; absent: null",
	"HookManyRequest.id":           "makes a repeat harmless, for each of the hooks",
	"HookManyRequest.stream":       "the reply is several messages: a result for each hook, with the header Drover-More: 1, then the sums",
	"HookListRequest.limit":        "how many at most, 1 to 1000; absent: 100",
	"HookTokenRequest.token":       "of the hook",
	"HookTokenRequest.force":       "hook.release: also where a run holds the token, whose waits on it then fail, or where it is retained",
	"RunRequest.run_id":            "the run",
	"RunRequest.node":              "result: of this node, not of the run",
	"RunRequest.item":              "result: of this item of the node, from 0",
	"RunRequest.values":            "status: with values that are big, and every item of fan-outs",
	"RunRequest.brief":             "status: without the definition",
	"RunRequest.wait":              "result of a run: for so long until it is over, at most 5m",
	"RunRequest.waiter":            "result, with wait: hold the outcome for this waiter, who consumes or releases it then",
	"ListRequest.status":           "only runs in this status",
	"ListRequest.open":             "only runs that are not over",
	"ListRequest.workflow":         "only runs of this workflow, or of program:NAME, or of program:NAME@VERSION",
	"ListRequest.tags":             "only runs with all of these tags",
	"ListRequest.limit":            "how many at most, 1 to 1000; absent: 100",
	"DefinitionRequest.name":       "definition.put: to be registered under, absent: the name in the definition; definition.get: exactly one of name and hash",
	"DefinitionRequest.hash":       "of the definition",
	"DefinitionRequest.definition": "definition.put: an object, or a string of YAML",
	"DeadListRequest.run_id":       "only of this run, as it was spelled",
	"DeadListRequest.verb":         "only of this verb",
	"DeadListRequest.code":         "only with this code of error",
	"DeadListRequest.limit":        "how many at most, 1 to 1000; absent: 100",
	"DeadRequest.sequence":         "of the letter, as dead.list shows it",
	"DeliveryFilter.status":        "only pending ones, or only dead ones",
	"DeliveryFilter.run_id":        "only of this run",
	"DeliveryFilter.workflow":      "only of runs of this workflow, or of program:NAME, or of program:NAME@VERSION",
	"DeliveryFilter.to":            "only to this subject, URL (without its query), function or session",
	"DeliveryListRequest.limit":    "how many at most, 1 to 1000; absent: 100",
	"DeliveryRequest.delivery_id":  "<run>:terminal:<subscriber>",
	"ReplayRequest.delivery_id":    "this one; absent: all that the other fields choose, of which one must be there",
}
