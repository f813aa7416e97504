"""Skills as people and models make them: proposals, files, changes, and the classifiers that give skills to tools."""
