package api

import (
	"cmp"
	"context"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// putDefinition stores a definition, and registers it where the request or the
// definition has a name.
func (s *Service) putDefinition(ctx context.Context, req *drover.DefinitionRequest) (any, error) {
	if len(req.Definition) == 0 {
		return nil, drover.Errorf(drover.CodeInvalidRequest, "the request has no definition: give an object, or a string of YAML")
	}
	text, err := drover.DefinitionText(req.Definition)
	if err != nil {
		return nil, err
	}
	def, err := drover.ParseDefinition(text)
	if err != nil {
		return nil, err
	}
	if _, err := machine.Compile(def); err != nil {
		return nil, err
	}
	if err := s.Names.ForeignNotify(def.Notify); err != nil {
		return nil, err
	}
	name := cmp.Or(req.Name, def.Name)
	if name != "" {
		if _, err := drover.ParseWorkflowName(string(name)); err != nil {
			return nil, err
		}
	}
	canonical, hash, err := def.Canonical()
	if err != nil {
		return nil, err
	}
	if req.Hash != "" && req.Hash != hash {
		return nil, drover.Errorf(drover.CodeConflict, "the definition has the hash %s, not %.80q: leave hash out", hash, string(req.Hash))
	}
	if err := s.Definitions.Put(ctx, hash, canonical); err != nil {
		return nil, err
	}
	if name != "" {
		if err := s.Definitions.SetName(ctx, name, hash); err != nil {
			return nil, err
		}
	}
	return drover.DefinitionReply{Name: name, Hash: hash}, nil
}

func (s *Service) getDefinition(ctx context.Context, req *drover.DefinitionRequest) (any, error) {
	if (req.Name == "") == (req.Hash == "") {
		return nil, drover.Errorf(drover.CodeInvalidRequest, "give exactly one of name and hash")
	}
	hash, err := drover.ParseHash(string(req.Hash))
	if req.Name != "" {
		if _, err := drover.ParseWorkflowName(string(req.Name)); err != nil {
			return nil, err
		}
		hash, err = s.Definitions.Lookup(ctx, req.Name)
	}
	if err != nil {
		return nil, err
	}
	data, err := s.Definitions.Get(ctx, hash)
	if err != nil {
		return nil, err
	}
	return drover.DefinitionReply{Name: req.Name, Hash: hash, Definition: data}, nil
}

func (s *Service) listDefinitions(ctx context.Context, _ *struct{}) (any, error) {
	names, err := s.Definitions.List(ctx)
	if err != nil {
		return nil, err
	}
	reply := drover.DefinitionList{Definitions: []drover.DefinitionReply{}}
	for _, r := range names {
		reply.Definitions = append(reply.Definitions, drover.DefinitionReply{Name: r.Name, Hash: r.Hash})
	}
	return reply, nil
}
