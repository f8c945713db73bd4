# Every target sets up what is missing first. Settings: RECIPE, MODEL, DATA, RUN, and ARGS for anything else.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo test check data sft rl study serve eval bench

RECIPE ?= recipes/tiny
RUN ?= tiny
MODEL ?=
DATA ?=
ARGS ?=
PYTHON ?= python3

run := .venv/bin/python
sources := scout data_prep eval tests .ci
# Nothing here needs a model hub; without these an import may wait for one.
export HF_HUB_OFFLINE ?= 1
export TRANSFORMERS_OFFLINE ?= 1
export PYTHON

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-7s %s\n", $$1, $$2}' Makefile

setup: ## make .venv with the pinned stack; instant when it is there
	@.ci/setup

demo: setup ## collect, train, export, serve and report on the tiny recipe, into runs/demo
	@$(run) -m eval.demo $(ARGS)

test: setup ## run all tests; prints how many were collected
	@$(run) -m pytest $(ARGS)

check: setup ## format, lint, types, size limits
	@$(run) -m ruff check $(sources)
	@$(run) -m ruff format --check $(sources)
	@$(run) -m mypy
	@$(run) .ci/limits.py

data: setup ## collect labelled runs: make data ARGS="--help" shows the options
	@$(run) -m data_prep.collect $(ARGS)

sft: setup ## train by SFT: RECIPE=recipes/tiny MODEL=... DATA=... RUN=name
	@$(run) -m scout train sft $(RECIPE)/sft.yaml --run runs/$(RUN)/sft \
	    $(if $(MODEL),--model $(MODEL)) $(if $(DATA),--data $(DATA)) $(ARGS)

rl: setup ## train by GRPO from runs/$RUN/sft/final: RECIPE=recipes/tiny DATA=... RUN=name
	@if [ ! -d runs/$(RUN)/sft/final ]; then \
	    echo "rl: runs/$(RUN)/sft/final is not there. Train it first: make sft RECIPE=$(RECIPE) RUN=$(RUN)" >&2; exit 1; fi
	@$(run) -m scout train grpo $(RECIPE)/grpo.yaml --run runs/$(RUN)/grpo --model runs/$(RUN)/sft/final \
	    $(if $(DATA),--data $(DATA)) $(ARGS)

study: setup ## compare the rewards of GRPO from one SFT start: make study ARGS="--help"
	@$(run) -m eval.study $(ARGS)

serve: setup ## serve MODEL (default runs/demo/model) over HTTP
	@$(run) -m scout serve $(or $(MODEL),runs/demo/model) $(ARGS)

eval: setup ## evaluate a run folder and write its report: make eval ARGS="--help"
	@$(run) -m eval.report $(ARGS)

bench: setup ## measure speed: make bench ARGS="--help"
	@$(run) -m eval.bench $(ARGS)
