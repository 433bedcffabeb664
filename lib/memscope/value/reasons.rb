# frozen_string_literal: true

require_relative "field"
require_relative "words"

module Memscope
  # The sentences for reasons, in reasons.words, by the ids that the extension uses.
  #
  # A reason is a sentence, an id that stands for one, or an Array of an id and the arguments of its sentence. An
  # argument is a reason, a number, or an Array of these, which becomes a list. Safe in a trap handler, and
  # without a free descriptor: the file is read when memscope is loaded.
  # @api private
  module Reasons
    WORDS = Words.beside(__FILE__)

    # @param reasons [Hash{Symbol => Object}] passing a frozen Hash equal to the last one costs nearly nothing
    # @return [Hash{Symbol => String, nil}] frozen
    # @raise [KeyError] for an unknown id
    def self.sentences(reasons)
      from, to = @last
      return to if from == reasons

      result = reasons.transform_values { |reason| sentence(reason) }.freeze
      @last = [reasons, result].freeze if reasons.frozen?
      result
    end

    # @return [String, nil] frozen, valid UTF-8
    # @raise [KeyError] for an unknown id
    def self.sentence(reason)
      case reason
      when Symbol then WORDS[reason]
      when Array then spelled(*reason).freeze
      when String then Field.text(reason)
      when Integer then reason.to_s.gsub(/(?<=\d)(?=(\d{3})+\z)/, ",") # "45,649"
      else reason
      end
    end

    def self.spelled(id, *arguments)
      return [id, *arguments].map { |item| sentence(item) }.join(", ") unless id.is_a?(Symbol)

      format(WORDS[id], *arguments.map { |argument| sentence(argument) })
    end
    private_class_method :spelled
  end
  private_constant :Reasons

  # This process cannot do or measure something now.
  class Unavailable < StandardError
    # @return [Symbol] the id of the reason, as in Reading#reasons
    attr_reader :reason

    # @api private
    # @param arguments [Array] of its sentence, as Reasons.sentence takes them
    def initialize(reason, *arguments)
      @reason = reason
      super(Reasons.sentence(arguments.empty? ? reason : [reason, *arguments]))
    end
  end
end
