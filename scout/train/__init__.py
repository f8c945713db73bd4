"""Training: thin modules over TRL. Import the submodules; nothing here is imported by `import scout`."""
