"""A fixed program in the place of a model, so that the gate can be tried without an account.

Public: ``model.ScriptedModel``, the provider ``scripted``. ``arguments`` reads the arguments of a call from a message,
``known_tools`` says which there are before a refusal does, ``wording`` puts results in words.
"""
